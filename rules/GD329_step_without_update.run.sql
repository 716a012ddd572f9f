WITH pair AS (
  SELECT rank, model_id, step, param_checksum, lead(param_checksum) OVER w AS after, lead(step) OVER w AS next_step
  FROM replica WHERE model_id >= 0 AND param_checksum IS NOT NULL
  WINDOW w AS (PARTITION BY rank, model_id ORDER BY step, param_checksum)
), driven AS (
  SELECT p.rank, p.step, p.model_id, max(g.norm) AS norm
  FROM pair AS p JOIN param AS q ON q.rank = p.rank AND q.model_id = p.model_id JOIN grad_stat AS g ON g.rank = p.rank AND g.step = p.step AND g.param_id = q.param_id AND g.stage = 'reduced'
  GROUP BY p.rank, p.step, p.model_id
), judged AS (
  SELECT p.rank, p.model_id, count(*) AS pairs, count(*) FILTER (WHERE p.after = p.param_checksum) AS still, min(p.step) FILTER (WHERE p.after = p.param_checksum) AS step, max(d.norm) AS norm
  FROM pair AS p JOIN driven AS d ON d.rank = p.rank AND d.step = p.step AND d.model_id = p.model_id JOIN step AS s ON s.rank = p.rank AND s.step = p.step
  WHERE p.after IS NOT NULL AND d.norm > 0 AND coalesce(s.lr, 1) > 0 GROUP BY p.rank, p.model_id
)
SELECT rank, NULL AS path, NULL AS line, step, still AS count, norm, 'model' || model_id AS group_key,
  'the optimizer stepped with gradients (norm ' || printf('%.3g', norm) || ') and no parameter changed, in ' || still || ' steps' AS message
FROM judged WHERE still >= 3 AND still >= 0.9 * pairs
UNION ALL
SELECT f.rank, f.path, f.line, min(f.step), sum(f.count), NULL, 'optimizer',
  f.name || ' stepped ' || sum(f.count) || ' times, and none of its parameters had a gradient: it does not hold the parameters that are trained'
FROM fact AS f JOIN (SELECT rank, count(*) AS steps FROM step GROUP BY rank) AS s ON s.rank = f.rank
WHERE f.kind = 'optimizer-without-gradients'
GROUP BY f.rank, f.path, f.line, f.name, s.steps HAVING sum(f.count) >= 3 AND sum(f.count) >= 0.5 * s.steps
ORDER BY ALL
