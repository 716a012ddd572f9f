SELECT rank, path, line, sum(count) AS count, any_value(name) AS model, any_value(detail) AS change
FROM fact
WHERE kind = 'ddp-moved'
GROUP BY rank, path, line
ORDER BY rank, path, line
