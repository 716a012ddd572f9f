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
), hit AS (
  SELECT rank, path, line, text FROM log_line
  WHERE regexp_matches(text, 'Detected mismatch between collectives|Mismatched collective detected|Collectives differ in the following aspects')
  UNION ALL
  SELECT rank, path, line, text FROM timed WHERE (SELECT mismatch FROM whole)
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line,
  CASE WHEN h.path = first_value(h.path) OVER w AND max(h.line) OVER (PARTITION BY h.path) - min(h.line) OVER (PARTITION BY h.path) + 1 = count(*) OVER (PARTITION BY h.path) THEN max(h.line) OVER (PARTITION BY h.path) END AS end_line,
  h.path AS log, h.line AS log_line, text AS log_text, list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines
FROM hit AS h
WINDOW w AS (ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
