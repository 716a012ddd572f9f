SELECT rank, path, line, any_value(name) AS parameters, max(value) AS parameter_count, 1 AS count,
  CAST(max(value) AS BIGINT) || ' parameters get gradients but no optimizer holds them: ' || any_value(name) AS message,
  'Pass them to the optimizer, or set `requires_grad_(False)` if they are meant to stay.' AS fix
FROM fact WHERE kind = 'params-not-in-optimizer'
GROUP BY rank, path, line ORDER BY rank, path, line
