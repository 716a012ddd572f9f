WITH steady AS (
    SELECT rank, count(*) AS steps FROM traced_step WHERE NOT warmup GROUP BY rank
), call AS (
    SELECT h.*, s.path, s.line, s.callee FROM host_call h LEFT JOIN call_site s ON s.rank = h.rank AND s.corr = h.corr
    WHERE h.kind IN ('alloc', 'free')
), cleared AS (
    SELECT DISTINCT rank, step FROM call WHERE kind = 'free' AND callee LIKE '%:empty_cache' AND step IS NOT NULL
), inside AS (
    SELECT c.rank, min(c.start) AS start_ns, max(c."end") AS end_ns, count(*) FILTER (c.kind = 'alloc') AS allocs, count(*) FILTER (c.kind = 'free') AS frees,
        coalesce(sum(c."end" - c.start) FILTER (NOT c.warmup), 0) AS cost_ns, count(DISTINCT c.step) FILTER (NOT c.warmup) AS hit,
        count(*) FILTER (NOT c.warmup AND c.kind = 'alloc') AS steady_allocs, count(*) FILTER (NOT c.warmup AND c.kind = 'free') AS steady_frees,
        mode(c.path) AS path, mode(c.line) AS line
    FROM call c ANTI JOIN cleared e ON c.rank = e.rank AND c.step = e.step
    WHERE c.step IS NOT NULL GROUP BY c.rank
), fired AS (
    SELECT i.*, s.steps FROM inside i JOIN steady s USING (rank)
    WHERE i.hit >= $min_steps_share * s.steps AND least(i.steady_allocs, i.steady_frees) >= $min_steps_share * s.steps
), whole AS (
    SELECT rank, min(start) AS start_ns, max("end") AS end_ns, count(*) FILTER (kind = 'alloc') AS allocs, count(*) FILTER (kind = 'free') AS frees,
        sum("end" - start) AS ns, count(step) AS in_steps
    FROM call GROUP BY rank
)
SELECT rank, start_ns, end_ns, (allocs + frees)::BIGINT AS count, cost_ns::BIGINT AS cost_ns, path, line, 'steps' AS group_key, NULL AS severity, NULL AS confidence,
    allocs, frees, steps, (cost_ns / steps)::BIGINT AS ns, NULL AS message
FROM fired
UNION ALL
SELECT rank, start_ns, end_ns, (allocs + frees)::BIGINT, NULL, NULL, NULL, 'outside steps', 'note', 'possible', allocs, frees, NULL, ns::BIGINT,
    '{allocs:n} cudaMalloc and {frees:n} cudaFree take {ns:ns} on {ranks}, {in_text}; if they recur, they stop the GPU each time'
        .replace('{in_text}', CASE WHEN in_steps = 0 THEN 'none of them inside a known step' ELSE in_steps || ' of them inside steps' END)
FROM whole WHERE allocs >= $storm AND frees >= $storm AND rank NOT IN (SELECT rank FROM fired) AND rank NOT IN (SELECT rank FROM cleared)
ORDER BY rank, group_key
