WITH work AS (
    SELECT c.path, c.kind, c.rank, c.api_calls + c.ranges + c.operators AS others,
        count(o.rank) FILTER (WHERE o.kind IN ('kernel', 'comm', 'memcpy')) AS ops, c.gpu_ops
    FROM capture c LEFT JOIN gpu_op o ON o.rank BETWEEN c.rank AND c.rank + c.ranks - 1
    WHERE c.kind IN ('nsys', 'kineto')
    GROUP BY c.path, c.kind, c.rank, c.gpu_ops, others
)
SELECT CASE WHEN others + gpu_ops > 0 THEN regexp_extract(path, '[^/\\]*$') || ' holds no kernel and no copy' END AS abstain,
    regexp_extract(path, '[^/\\]*$') AS file, path AS group_key, 1 AS count
FROM work WHERE ops = 0
ORDER BY path
