WITH last AS (
  SELECT rank, max(step) AS step FROM step GROUP BY rank
), setting AS (
  SELECT rank, bool_or(coalesce(find_unused, false) OR coalesce(static_graph, false)) AS tolerates FROM model WHERE kind = 'ddp' GROUP BY rank
)
SELECT f.rank, f.path, f.line, any_value(f.name) AS parameters, max(f.value) AS parameter_count, 1 AS count, 'error' AS severity,
  'no gradient reaches ' || any_value(f.name) || ': DDP waits for them and the next forward fails' AS message, NULL AS fix
FROM fact AS f JOIN setting AS s ON s.rank = f.rank JOIN last AS l ON l.rank = f.rank
WHERE f.kind = 'unused' AND NOT s.tolerates AND l.step < 2
GROUP BY f.rank, f.path, f.line
UNION ALL
SELECT rank, path, line, any_value(name), NULL, 1, 'perf',
  'DDP searches the graph for unused parameters in every step, and there were none',
  'Leave `find_unused_parameters=True` out: every parameter got its gradient.'
FROM fact
WHERE kind = 'find-unused-needless'
GROUP BY rank, path, line
ORDER BY ALL
