WITH cut AS (
  SELECT max(value) FILTER (WHERE kind = 'stalled') AS stalled_s, count(*) FILTER (WHERE kind = 'interrupted') = 0 AS counts FROM fact
), rank AS (
  SELECT r.*, coalesce(r.op, '') <> '' AS waits, coalesce(r.issued, 0) AS n, coalesce(r.timeout_ns, 0) > 0 AS timed_out FROM rank_info AS r
), spot AS (
  SELECT rank, first(file ORDER BY depth) AS file, first(line ORDER BY depth) AS line, first(func ORDER BY depth) AS func
  FROM stack_frame WHERE thread = 0 AND "user" GROUP BY rank
), ended AS (
  SELECT cut.stalled_s, max(timeout_ns) AS limit_ns, min(n) AS fewest, max(n) AS most, bool_and(waits) AS all_wait, count(*) AS ranks
  FROM rank, cut WHERE cut.counts AND state <> 'done' GROUP BY ALL
  HAVING cut.stalled_s IS NOT NULL OR bool_or(timed_out)
), behind AS (
  SELECT r.rank, r.op, r.waits, r.phase, r.last_step, e.*, row_number() OVER (ORDER BY r.waits, r.n, r.rank) AS place
  FROM rank AS r, ended AS e WHERE r.state <> 'done'
), waiter AS (
  SELECT string_agg(DISTINCT rank, ', ' ORDER BY rank) AS who, any_value(op) AS op FROM behind WHERE place > 1 AND waits
)
SELECT b.rank, s.file AS path, s.line AS line, 'hang' AS group_key, b.last_step + 1 AS step, b.stalled_s, coalesce(b.op, '') AS op,
  CASE
    WHEN b.all_wait AND b.fewest = b.most THEN 'all ' || b.ranks || ' ranks wait in ' || b.op || ' (collective ' || (b.most - 1) || '), which never finished'
    WHEN b.all_wait THEN 'rank ' || b.rank || ' is behind: it waits in its collective ' || (b.fewest - 1) || ' (' || b.op || ')' || coalesce(', rank ' || w.who || ' in collective ' || (b.most - 1) || ' (' || w.op || ')', '')
    ELSE 'rank ' || b.rank || ' stopped' || coalesce(' in ' || s.func || ' (' || parse_filename(s.file) || ':' || s.line || ')', '')
      || coalesce(' while rank ' || w.who || ' waited for it in ' || w.op, ', and so did all other ranks')
  END
  || CASE WHEN b.stalled_s IS NOT NULL THEN '; nothing moved for ' || round(b.stalled_s, 0)::BIGINT || ' s and the run was ended' ELSE '; the wait ended after ' || (b.limit_ns // 1000000000) || ' s' END AS story
FROM behind AS b LEFT JOIN spot AS s ON s.rank = b.rank, waiter AS w
WHERE b.place = 1
