SELECT rank, path, line, sum(count) AS count,
  'no_sync() covered the backward but not its forward: ' || sum(count) || ' micro-batches were all-reduced all the same' AS message
FROM fact
WHERE kind = 'no-sync-without-forward'
GROUP BY rank, path, line
ORDER BY rank, path, line
