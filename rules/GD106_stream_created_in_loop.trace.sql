WITH steady AS (
    SELECT rank, count(*) AS steps FROM traced_step WHERE NOT warmup GROUP BY rank
), made AS (
    SELECT h.rank, s.path, s.line, min(h.start) AS start_ns, max(h."end") AS end_ns, count(*) AS count,
        count(DISTINCT h.step) FILTER (NOT h.warmup) AS hit, coalesce(sum(h."end" - h.start) FILTER (NOT h.warmup), 0) AS cost_ns
    FROM host_call h LEFT JOIN call_site s ON s.rank = h.rank AND s.corr = h.corr
    WHERE h.kind = 'stream_create' AND h.step IS NOT NULL GROUP BY h.rank, s.path, s.line
), gone AS (
    SELECT rank, count(*) AS destroyed FROM host_call WHERE kind = 'stream_destroy' AND step IS NOT NULL GROUP BY rank
)
SELECT m.rank, m.start_ns, m.end_ns, m.count, m.cost_ns::BIGINT AS cost_ns, m.path, m.line, coalesce(g.destroyed, 0) AS destroyed, t.steps
FROM made m JOIN steady t USING (rank) LEFT JOIN gone g USING (rank)
WHERE m.hit >= $min_steps_share * t.steps
ORDER BY m.rank, m.path, m.line
