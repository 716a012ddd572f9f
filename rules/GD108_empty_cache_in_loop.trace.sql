WITH steady AS (
    SELECT rank, count(*) AS steps FROM traced_step WHERE NOT warmup GROUP BY rank
), call AS (
    SELECT h.*, s.path, s.line, s.callee FROM host_call h LEFT JOIN call_site s ON s.rank = h.rank AND s.corr = h.corr
    WHERE h.kind IN ('alloc', 'free') AND h.step IS NOT NULL
), cleared AS (
    SELECT rank, path, line, count(DISTINCT step) FILTER (NOT warmup) AS hit FROM call
    WHERE kind = 'free' AND callee LIKE '%:empty_cache' GROUP BY rank, path, line
), cost AS (
    SELECT rank, min(start) AS start_ns, max("end") AS end_ns, count(*) FILTER (kind = 'free') AS frees, count(*) FILTER (kind = 'alloc') AS allocs,
        coalesce(sum("end" - start) FILTER (NOT warmup), 0) AS cost_ns
    FROM call WHERE (rank, step) IN (SELECT (rank, step) FROM call WHERE kind = 'free' AND callee LIKE '%:empty_cache') GROUP BY rank
)
SELECT c.rank, k.start_ns, k.end_ns, k.frees AS count, k.cost_ns::BIGINT AS cost_ns, c.path, c.line, k.frees, k.allocs, t.steps, (k.cost_ns / t.steps)::BIGINT AS ns, NULL AS abstain
FROM cleared c JOIN cost k USING (rank) JOIN steady t USING (rank)
WHERE c.hit >= $min_steps_share * t.steps
UNION ALL
SELECT c.rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'memory is freed in the steps, but the capture has no Python stacks that say by whom'
FROM call c JOIN steady t USING (rank)
WHERE c.kind = 'free' AND NOT c.warmup AND c.rank NOT IN (SELECT rank FROM pystack)
GROUP BY c.rank, t.steps HAVING count(DISTINCT c.step) >= $min_steps_share * t.steps
ORDER BY 1, 6, 7
