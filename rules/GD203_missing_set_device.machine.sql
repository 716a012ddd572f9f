WITH holder AS (
  SELECT pid, max(bytes) FILTER (WHERE device = 0) AS extra, max(bytes) FILTER (WHERE device <> 0) AS own, count(DISTINCT device) AS cards FROM device_process WHERE step IS NULL GROUP BY pid
)
SELECT pid, extra, 0 AS device, 'pid ' || pid AS group_key, 'process ' || pid || ' holds ' || round(extra / 1048576.0)::BIGINT || ' MiB on card 0 beside its own card' AS message
FROM holder
WHERE cards = 2 AND extra < own AND (SELECT count(*) FROM holder WHERE extra IS NOT NULL) >= 2
ORDER BY pid
