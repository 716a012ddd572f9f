WITH alike AS (
  SELECT DISTINCT rank, model_id, ranks AS together FROM model WHERE kind = 'ddp' AND contains(ranks, ',')
  UNION
  SELECT DISTINCT rank, TRY_CAST(name AS BIGINT), 'by hand' FROM fact WHERE kind = 'grads-reduced-by-hand'
), seen AS (
  SELECT a.together, s.step, s.param_id, any_value(p.name) AS name, min(s.norm) AS low, max(s.norm) AS high, count(DISTINCT s.rank) AS ranks
  FROM grad_stat AS s
  JOIN param AS p ON p.rank = s.rank AND p.param_id = s.param_id
  JOIN alike AS a ON a.rank = s.rank AND a.model_id = p.model_id
  WHERE s.stage = 'reduced' AND s.norm IS NOT NULL
  GROUP BY a.together, s.step, s.param_id
  HAVING count(DISTINCT s.rank) > 1
), judged AS (
  SELECT together, param_id, any_value(name) AS name, count(*) AS steps, count(*) FILTER (WHERE high > 1e-12 AND high - low > $tolerance * high) AS apart,
    min(step) FILTER (WHERE high > 1e-12 AND high - low > $tolerance * high) AS first_step, max((high - low) / high) FILTER (WHERE high > 1e-12) AS spread
  FROM seen GROUP BY together, param_id
), bad AS (
  SELECT together, count(*) AS parameter_count, arg_max(name, spread) AS parameter, max(apart) AS steps_apart, min(first_step) AS first_step, max(spread) AS spread
  FROM judged WHERE apart >= $min_steps AND apart >= 0.5 * steps
  GROUP BY together
)
SELECT r.rank, b.parameter, b.parameter_count, b.steps_apart, b.first_step, b.spread, b.steps_apart AS count, b.together AS group_key
FROM bad AS b JOIN (SELECT DISTINCT rank, together FROM alike) AS r ON r.together = b.together
ORDER BY r.rank
