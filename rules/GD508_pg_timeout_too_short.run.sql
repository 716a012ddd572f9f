WITH waiting AS (
  SELECT * FROM rank_info
  WHERE state IN ('failed', 'killed') AND timeout_ns > 0 AND NOT EXISTS (SELECT 1 FROM fact WHERE kind IN ('interrupted', 'stalled'))
  ORDER BY t_end, rank LIMIT 1
), given_up AS (
  SELECT c.* FROM last_collective AS c JOIN waiting AS w ON c.rank = w.rank WHERE c.state = 'failed' ORDER BY c.ticket LIMIT 1
), came AS (
  SELECT c.rank, c.start - g.start AS behind_ns FROM last_collective AS c, given_up AS g
  WHERE c.rank <> g.rank AND c."group" = g."group" AND c.seq = g.seq AND c.op = g.op AND c.start >= g."end"
), late AS (
  SELECT r.rank, w.rank AS waiter, coalesce(g.op, nullif(w.op, ''), 'a collective') AS waits_in, w.timeout_ns // 1000000 AS limit_ms,
    coalesce(w.path, g.path) AS path, coalesce(w.line, g.line) AS line, c.behind_ns
  FROM waiting AS w JOIN rank_info AS r ON r.rank <> w.rank
  LEFT JOIN given_up AS g ON g.rank = w.rank LEFT JOIN came AS c ON c.rank = r.rank
  WHERE r.state <> 'done' AND (r.victim OR r.timeout_ns > 0)
    AND (c.rank IS NOT NULL
      OR (coalesce(r.op, '') = '' AND coalesce(r.issued, 0) < coalesce(w.issued, 0) AND (w.timeout_ns / 1000000 < $short_ms OR w.issued <= $early)))
), spot AS (
  SELECT rank, first(file ORDER BY depth) AS file, first(line ORDER BY depth) AS line, first(func ORDER BY depth) AS func
  FROM stack_frame WHERE thread = 0 AND "user" GROUP BY rank
)
SELECT l.waiter AS rank, l.path, l.line, l.waits_in AS op, l.limit_ms, l.rank AS late_rank, f.func AS busy_in, l.behind_ns, 'timeout' AS group_key,
  CASE WHEN l.behind_ns IS NOT NULL THEN 'certain' ELSE 'likely' END AS confidence,
  'rank ' || l.waiter || ' gave up waiting in ' || l.waits_in || ' after ' || l.limit_ms || ' ms, while rank ' || l.rank || ' was still at work'
    || coalesce(' in ' || f.func || ' (' || parse_filename(f.file) || ':' || f.line || ')', '')
    || coalesce(' and came to it ' || round(l.behind_ns / 1e9, 1) || ' s after it', '') AS message
FROM late AS l LEFT JOIN spot AS f ON f.rank = l.rank
ORDER BY l.behind_ns DESC NULLS LAST, l.rank
LIMIT 1
