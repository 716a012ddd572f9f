SELECT rank, path, line, sum(count) AS count, max(value) AS window,
  'the micro-batch before the optimizer step ran without gradient synchronisation in ' || sum(count) || ' steps: each rank stepped with its own gradient' AS message,
  'Leave `no_sync()` out (or set `require_backward_grad_sync = True` before the forward) for the last micro-batch before `step()`.' AS fix
FROM fact
WHERE kind = 'unsynced-step' AND NOT EXISTS (SELECT 1 FROM fact WHERE kind = 'flag-after-forward')
GROUP BY rank, path, line
ORDER BY rank, path, line
