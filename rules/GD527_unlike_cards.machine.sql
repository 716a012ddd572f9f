SELECT string_agg(name || ' ' || round(memory / 1073741824.0)::BIGINT || ' GiB', ', ' ORDER BY device) AS cards
FROM gpu
WHERE memory IS NOT NULL
HAVING count(DISTINCT name) > 1 OR min(memory) < 0.95 * max(memory)
