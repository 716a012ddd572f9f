SELECT rank, path, line, sum(coalesce(count, 1)) AS count, min(step) AS step,
  'gradients were unscaled before the last backward of step ' || min(step) || ': scaled and unscaled ones are added up' AS message,
  'Call `scaler.unscale_(optimizer)` once per optimizer step, after the last backward of the accumulation.' AS fix
FROM fact WHERE kind = 'unscale-inside-accumulation'
GROUP BY rank, path, line
ORDER BY rank, path, line
