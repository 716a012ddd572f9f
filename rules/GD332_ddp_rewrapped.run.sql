WITH made AS (
  SELECT rank, model_id, path, line, count(*) AS times, max(wraps) AS wraps, any_value(name) AS name, max(step) AS last_step, min(step) AS first_step FROM model WHERE kind = 'ddp' GROUP BY rank, model_id, path, line
)
SELECT rank, path, line, times AS count, name AS model,
  'a new DDP wrapper was made for the same `' || name || '` ' || times || ' times on this line (steps ' || first_step || ' to ' || last_step || ')' AS message,
  'Wrap once, before the loop, and keep the wrapper.' AS fix
FROM made WHERE times >= 3 OR (times = 2 AND last_step > first_step)
ORDER BY rank, model_id, path, line
