SELECT rank, path, line, sum(coalesce(count, 1)) AS count, max(value) AS scale,
  'gradients are clipped in ' || sum(coalesce(count, 1)) || ' steps while they are still multiplied by the loss scale, ' || round(max(value))::BIGINT AS message,
  'Call `scaler.unscale_(optimizer)` after backward and before clipping.' AS fix
FROM fact WHERE kind = 'clip-before-unscale'
GROUP BY rank, path, line
ORDER BY rank, path, line
