SELECT max(value) FILTER (WHERE name = 'shm_total') AS total, 'it holds ' || round(max(value) FILTER (WHERE name = 'shm_total') / 1048576)::BIGINT || ' MiB' AS story, 'warning' AS severity, 'likely' AS confidence
FROM machine_fact
WHERE (SELECT count(*) FROM gpu) >= 2
HAVING max(value) FILTER (WHERE name = 'shm_total') < $min_bytes
