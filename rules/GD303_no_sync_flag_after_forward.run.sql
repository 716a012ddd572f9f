WITH lost AS (SELECT rank, sum(count) AS steps FROM fact WHERE kind = 'unsynced-step' GROUP BY rank)
SELECT f.rank, f.path, f.line, sum(f.count) AS count,
  CASE WHEN any_value(l.steps) IS NULL THEN 'perf' ELSE 'error' END AS severity,
  'between forward and backward `require_backward_grad_sync` changed; DDP had decided in the forward' || CASE WHEN any_value(l.steps) IS NULL
    THEN ', so micro-batches that should stay local were all-reduced' ELSE ', so ' || any_value(l.steps) || ' steps used gradients that were not averaged' END AS message,
  'Set the flag before the forward of the micro-batch it is meant for.' AS fix
FROM fact AS f LEFT JOIN lost AS l ON l.rank = f.rank
WHERE f.kind = 'flag-after-forward'
GROUP BY f.rank, f.path, f.line
ORDER BY f.rank, f.path, f.line
