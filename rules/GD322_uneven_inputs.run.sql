WITH cut AS (
  SELECT count(*) FILTER (WHERE kind = 'interrupted') = 0 AS counts, max(value) FILTER (WHERE kind = 'stalled') AS stalled_s FROM fact
), main AS (
  SELECT * FROM stack_frame WHERE thread = 0
), behind AS (
  SELECT r.* FROM rank_info AS r, cut
  WHERE cut.counts AND r.state IN ('failed', 'stuck', 'killed') AND r.phase IN ('forward', 'backward')
    AND (cut.stalled_s IS NOT NULL OR r.timeout_ns > 0 OR regexp_matches(coalesce(r.last_line, ''), '[Cc]onnection (closed|reset)|Socket Timeout|Broken pipe|ncclRemoteError'))
), pair AS (
  SELECT DISTINCT b.rank, b.path, b.line, b.last_step + 1 AS step, e.rank AS early, e.last_step + 1 AS early_steps
  FROM behind AS b, rank_info AS e
  WHERE e.rank <> b.rank AND b.last_step >= e.last_step AND e.last_step >= 0
    AND (e.state = 'done' OR EXISTS (
      SELECT 1 FROM main AS inside, main AS outside
      WHERE inside.rank = b.rank AND outside.rank = e.rank AND inside.file = outside.file AND inside.func = outside.func
        AND inside.loop_end IS NOT NULL AND outside.line > inside.loop_end))
), own AS (
  SELECT DISTINCT rank FROM rank_info AS r
  WHERE r.state IN ('failed', 'killed') AND NOT coalesce(r.victim, false) AND r.timeout_ns IS NULL
    AND NOT regexp_matches(coalesce(r.last_line, ''), '[Cc]onnection (closed|reset)|Socket Timeout|Broken pipe|ncclRemoteError')
)
SELECT p.rank, coalesce(p.path, f.file) AS path, coalesce(p.line, f.line) AS line, p.step + 1 AS step, min(p.early) AS early, max(p.early_steps) AS early_steps, 'uneven' AS group_key
FROM pair AS p
LEFT JOIN (SELECT rank, first(file ORDER BY depth) AS file, first(line ORDER BY depth) AS line FROM main WHERE "user" GROUP BY rank) AS f ON f.rank = p.rank
WHERE NOT EXISTS (SELECT 1 FROM own)
GROUP BY ALL
ORDER BY p.rank
