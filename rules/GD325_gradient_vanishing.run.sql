WITH own AS (
  SELECT s.rank, s.step, s.param_id, any_value(p.name) AS name, any_value(p.model_id) AS model_id, max(s.norm) / sqrt(greatest(max(s.numel), 1)) AS size
  FROM grad_stat AS s JOIN param AS p ON p.rank = s.rank AND p.param_id = s.param_id
  WHERE s.stage = 'reduced' AND s.norm IS NOT NULL GROUP BY s.rank, s.step, s.param_id
), model_size AS (
  SELECT rank, step, model_id, max(size) AS top FROM own GROUP BY rank, step, model_id
), judged AS (
  SELECT o.rank, o.param_id, any_value(o.name) AS name, count(*) AS steps, count(*) FILTER (WHERE o.size > 0 AND o.size < $share * m.top) AS tiny, median(o.size / nullif(m.top, 0)) AS ratio
  FROM own AS o JOIN model_size AS m USING (rank, step, model_id) WHERE m.top > 0 GROUP BY o.rank, o.param_id
)
SELECT rank, min(name) AS parameter, count(*) AS parameter_count, min(ratio) AS ratio, max(steps) AS count
FROM judged WHERE steps >= $min_steps AND tiny = steps
GROUP BY rank ORDER BY rank
