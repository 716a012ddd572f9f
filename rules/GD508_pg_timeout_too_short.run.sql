WITH waiting AS (
  SELECT * FROM rank_info
  WHERE state IN ('failed', 'killed') AND timeout_ns > 0 AND NOT EXISTS (SELECT 1 FROM fact WHERE kind IN ('interrupted', 'stalled'))
  ORDER BY t_end, rank LIMIT 1
), late AS (
  SELECT r.*, w.rank AS waiter, w.op AS waits_in, w.timeout_ns AS limit_ns, w.path AS wait_path, w.line AS wait_line
  FROM rank_info AS r, waiting AS w
  WHERE r.rank <> w.rank AND r.state <> 'done' AND coalesce(r.op, '') = '' AND coalesce(r.issued, 0) < coalesce(w.issued, 0)
    AND (r.victim OR r.timeout_ns > 0) AND (w.timeout_ns / 1000000 < $short_ms OR w.issued <= $early)
)
SELECT l.waiter AS rank, l.wait_path AS path, l.wait_line AS line, coalesce(nullif(l.waits_in, ''), 'a collective') AS op, l.limit_ns // 1000000 AS limit_ms,
  l.rank AS late_rank, f.func AS busy_in, 'timeout' AS group_key,
  'rank ' || l.waiter || ' gave up waiting in ' || coalesce(nullif(l.waits_in, ''), 'a collective') || ' after ' || (l.limit_ns // 1000000) || ' ms, while rank ' || l.rank || ' was still at work'
    || coalesce(' in ' || f.func || ' (' || parse_filename(f.file) || ':' || f.line || ')', '') AS message
FROM late AS l
LEFT JOIN (SELECT rank, first(file ORDER BY depth) AS file, first(line ORDER BY depth) AS line, first(func ORDER BY depth) AS func FROM stack_frame WHERE thread = 0 AND "user" GROUP BY rank) AS f ON f.rank = l.rank
ORDER BY l.rank
LIMIT 1
