WITH bad AS (
  SELECT s.rank, s.step, s.param_id, s.stage FROM grad_stat AS s
  WHERE s.nonfinite > 0 AND NOT EXISTS (SELECT 1 FROM amp AS a WHERE a.rank = s.rank AND a.step = s.step AND a.skipped)
), used AS (
  SELECT rank, min(step) AS step, count(DISTINCT step) AS steps FROM bad WHERE stage = 'reduced' GROUP BY rank
), origin AS (
  SELECT arg_min(rank, (step, rank)) AS rank, min(step) AS step FROM bad WHERE stage = 'local'
)
SELECT u.rank, u.step, u.steps AS count, p.name AS parameter, o.rank AS first_rank,
  'the optimizer stepped with NaN or infinite gradients in ' || u.steps || ' steps, first at step ' || u.step || coalesce(' in ' || p.name, '')
    || CASE WHEN o.rank IS NOT NULL AND o.step <= u.step THEN '; they arose on rank ' || o.rank ELSE '' END AS message
FROM used AS u
LEFT JOIN origin AS o ON true
LEFT JOIN (SELECT b.rank, b.step, any_value(p.name ORDER BY p.param_id) AS name FROM bad AS b JOIN param AS p ON p.rank = b.rank AND p.param_id = b.param_id WHERE b.stage = 'reduced' GROUP BY b.rank, b.step) AS p
  ON p.rank = u.rank AND p.step = u.step
ORDER BY u.rank
