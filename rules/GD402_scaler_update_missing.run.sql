SELECT rank, path, line, 'run' AS group_key, sum(coalesce(count, 1)) AS count, min(step) AS step,
  'GradScaler refused a second call in step ' || min(step) || ': its `update()` was left out after an `unscale_` or `step`' AS message,
  'Call `scaler.update()` in every iteration in which `unscale_` or `step` was called, also where the optimizer''s step is left out on purpose.' AS fix
FROM fact WHERE kind = 'scaler-update-missing'
GROUP BY rank, path, line
ORDER BY rank, path, line
