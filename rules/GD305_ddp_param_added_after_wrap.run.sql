SELECT rank, path, line, any_value(name) AS parameters, max(value) AS parameter_count, any_value(detail) AS how, 1 AS count
FROM fact
WHERE kind = 'params-added'
GROUP BY rank, path, line
ORDER BY rank, path, line
