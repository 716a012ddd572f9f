SELECT rank, path, line, sum(count) AS count, max(value) AS world,
  'a loss that is already a mean is multiplied by the world size (' || CAST(max(value) AS BIGINT) || ') before backward; DDP averages, so gradients are that much too large' AS message
FROM fact
WHERE kind = 'loss-times-world' AND EXISTS (SELECT 1 FROM model WHERE kind = 'ddp' AND contains(ranks, ','))
GROUP BY rank, path, line
HAVING sum(count) >= 2
ORDER BY rank, path, line
