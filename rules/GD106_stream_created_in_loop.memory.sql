WITH used AS (
  SELECT e.rank, e.device, e.stream, e.stack_id, min(e.seq) AS first, max(e.seq) AS last, count(*) AS allocs
  FROM mem_event AS e WHERE e.action = 'alloc' AND e.stream <> 0 AND e.stack_id IS NOT NULL
  GROUP BY e.rank, e.device, e.stream, e.stack_id
), turns AS (
  SELECT *, lag(last) OVER (PARTITION BY rank, device, stack_id ORDER BY first, stream) AS before FROM used
), one_by_one AS (
  SELECT rank, device, stack_id, count(*) AS streams FROM turns GROUP BY rank, device, stack_id
  HAVING count(*) >= 4 AND bool_and(before IS NULL OR first > before)
), pool AS (
  SELECT b.rank, b.device, b.stream, sum(b.bytes) AS held, coalesce(sum(b.bytes) FILTER (WHERE b.state = 'inactive'), 0) AS idle FROM mem_block AS b WHERE b.stream <> 0 GROUP BY b.rank, b.device, b.stream
), frame AS (
  SELECT rank, stack_id, first(file ORDER BY depth) AS file, first(line ORDER BY depth) AS line FROM mem_stack
  WHERE NOT regexp_matches(file, '[/\\](site|dist)-packages[/\\]|[/\\]torch[/\\]|^<') GROUP BY rank, stack_id
)
SELECT o.rank, o.device, f.file AS path, f.line, o.streams, sum(p.held)::BIGINT AS held, sum(p.idle)::BIGINT AS idle, o.streams AS count,
  '{streams:n} streams were used one after the other from here; each keeps its own pool, together {held:B}, of which {idle:B} lie idle' AS message
FROM one_by_one AS o JOIN used AS u USING (rank, device, stack_id) JOIN pool AS p ON p.rank = o.rank AND p.device = o.device AND p.stream = u.stream
LEFT JOIN frame AS f ON f.rank = o.rank AND f.stack_id = o.stack_id
GROUP BY o.rank, o.device, f.file, f.line, o.streams
HAVING sum(p.idle) >= 0.5 * sum(p.held)
ORDER BY o.rank, o.device, f.file, f.line
