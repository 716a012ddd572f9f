SELECT rank, regexp_extract(path, '[^/\\]*$') AS file, path AS group_key, greatest(dropped, 1) AS count,
    CASE WHEN truncated THEN 'its end is missing' ELSE dropped || ' rows end before they start or lie outside any clock, and were left out' END AS what
FROM capture
WHERE kind IN ('nsys', 'kineto')
    AND (truncated OR dropped > $min_dropped * (dropped + gpu_ops + api_calls + ranges + operators))
ORDER BY path
