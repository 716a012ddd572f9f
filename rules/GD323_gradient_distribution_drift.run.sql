WITH local_norm AS (
  SELECT s.rank, s.step, s.param_id, p.name, s.norm
  FROM grad_stat AS s JOIN param AS p ON p.rank = s.rank AND p.param_id = s.param_id
  WHERE s.stage = 'local' AND s.norm > 0 AND isfinite(s.norm)
), middle AS (
  SELECT step, param_id, median(norm) AS norm, min(norm) AS low, max(norm) AS high, count(*) AS ranks FROM local_norm GROUP BY step, param_id HAVING count(*) > 1
), ratio AS (
  SELECT l.rank, l.param_id, any_value(l.name) AS name, count(*) AS steps, median(ln(l.norm / (CASE WHEN m.ranks = 2 THEN m.low ELSE m.norm END))) AS log_ratio,
    quantile_cont(ln(l.norm / (CASE WHEN m.ranks = 2 THEN m.low ELSE m.norm END)), 0.1) AS log_low
  FROM local_norm AS l JOIN middle AS m USING (step, param_id) GROUP BY l.rank, l.param_id
), layers AS (
  SELECT rank, count(*) AS layers, count(*) FILTER (WHERE steps >= $min_steps AND log_low > ln($times)) AS above, arg_max(name, log_ratio) AS name, max(log_ratio) AS log_ratio, max(steps) AS steps
  FROM ratio GROUP BY rank
)
SELECT rank, name AS parameter, above AS parameter_count, exp(log_ratio) AS times, steps AS count
FROM layers WHERE above >= 1 AND above >= 0.5 * layers
ORDER BY rank
