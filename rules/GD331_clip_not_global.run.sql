WITH alike AS (
  SELECT DISTINCT rank, model_id, ranks AS together FROM model WHERE kind = 'ddp' AND contains(ranks, ',')
  UNION
  SELECT DISTINCT rank, TRY_CAST(name AS BIGINT), 'by hand' FROM fact WHERE kind = 'grads-reduced-by-hand'
), calls AS (
  SELECT c.rank, c.step, c.total_norm, c.max_norm, c.params, c.path, c.line, row_number() OVER (PARTITION BY c.rank, c.step ORDER BY c.path, c.line, c.params, c.total_norm) AS nth
  FROM clip AS c WHERE c.total_norm IS NOT NULL AND EXISTS (SELECT 1 FROM alike AS a WHERE a.rank = c.rank)
), step_clip AS (
  SELECT step, nth, path, line, count(*) AS ranks, min(total_norm) AS low, max(total_norm) AS high, max(max_norm) AS max_norm, count(DISTINCT params) AS sizes
  FROM calls GROUP BY step, nth, path, line HAVING count(*) > 1
), bad AS (
  SELECT path, line, count(*) AS steps, min(step) AS step, max(high / low) AS ratio
  FROM step_clip WHERE sizes = 1 AND low > 0 AND high > max_norm AND high > low * (1 + $tolerance) GROUP BY path, line HAVING count(*) >= 2
)
SELECT r.rank, b.path, b.line, b.step, b.steps AS count, b.ratio FROM bad AS b, (SELECT DISTINCT rank FROM alike) AS r
ORDER BY r.rank, b.path, b.line
