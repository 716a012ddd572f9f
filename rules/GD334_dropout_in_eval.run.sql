SELECT rank, path, line, sum(count) AS count, any_value(name) AS model
FROM fact WHERE kind = 'dropout-in-eval'
GROUP BY rank, path, line ORDER BY rank, path, line
