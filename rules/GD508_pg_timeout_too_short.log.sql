WITH timed AS (
  SELECT rank, path, line, text,
    try_cast(regexp_extract(text, 'SeqNum=(\d+)', 1) AS BIGINT) AS seq,
    nullif(regexp_extract(text, 'OpType=(\w+)', 1), '') AS op,
    try_cast(regexp_extract(text, 'NumelIn=(\d+)', 1) AS BIGINT) AS numel,
    coalesce(try_cast(regexp_extract(text, 'Timeout\(ms\)=(\d+)', 1) AS BIGINT), try_cast(regexp_extract(text, 'Timed out waiting (\d+) ?ms', 1) AS BIGINT)) AS limit_ms
  FROM log_line
  WHERE NOT EXISTS (SELECT 1 FROM rank_info WHERE source = 'launch')
    AND regexp_matches(text, 'Watchdog caught collective operation timeout|Timed out waiting \d+ ?ms for (recv|send)')
), world AS (
  SELECT max(try_cast(regexp_extract(text, 'n[Rr]anks (\d+)', 1) AS BIGINT)) AS size FROM log_line
), whole AS (
  SELECT count(DISTINCT rank) AS seen, min(seq) AS lowest, max(seq) AS highest, min(limit_ms) AS limit_ms, any_value(world.size) AS world,
    count(*) FILTER (WHERE seq = first_seq AND (op <> first_op OR numel <> first_numel)) > 0 AS mismatch
  FROM (SELECT *, first_value(seq) OVER t AS first_seq, first_value(op) OVER t AS first_op, first_value(numel) OVER t AS first_numel FROM timed WINDOW t AS (ORDER BY seq, path, line)), world
), verdict AS (
  SELECT *, limit_ms < $short_ms OR (coalesce(highest, 0) <= $early AND seen < coalesce(world, 2)) AS late FROM whole
)
SELECT t.rank, first_value(t.path) OVER w AS path, first_value(t.line) OVER w AS line,
  CASE WHEN t.path = first_value(t.path) OVER w AND max(t.line) OVER (PARTITION BY t.path) - min(t.line) OVER (PARTITION BY t.path) + 1 = count(*) OVER (PARTITION BY t.path) THEN max(t.line) OVER (PARTITION BY t.path) END AS end_line, t.path AS log, t.line AS log_line, t.text AS log_text,
  list(t.line) OVER (PARTITION BY t.path ORDER BY t.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines, coalesce(t.op, 'a collective') AS op, t.seq, v.limit_ms
FROM timed AS t, verdict AS v
WHERE v.late AND NOT v.mismatch
WINDOW w AS (ORDER BY t.path, t.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
