WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(copy_exposed) AS copy_exposed,
        sum(concurrent) AS concurrent, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), kernel AS (
    SELECT rank, device, median("end" - start) AS typical, count(*) AS n, avg(launched - launch) FILTER (launch IS NOT NULL) AS call
    FROM op WHERE kind = 'kernel' AND graph IS NULL AND step IS NOT NULL AND NOT warmup GROUP BY rank, device
), idle AS (
    SELECT rank, device, sum(ns) AS ns, count(*) AS n FROM gap WHERE cause = 'launch' AND NOT warmup AND NOT graph GROUP BY rank, device
)
SELECT s.rank, s.device, s.start_ns, s.end_ns, i.n AS count, i.ns::BIGINT AS cost_ns, (i.ns / s.steps)::BIGINT AS idle_per_step, i.ns / s.span AS share,
    k.typical::BIGINT AS kernel_ns, k.call::BIGINT AS launch_ns, round(k.n / s.steps) AS kernels_per_step,
    greatest(0, (i.ns - i.n * $graph_gap) / s.steps)::BIGINT AS gain, NULL AS abstain
FROM steady s JOIN idle i ON i.rank = s.rank AND i.device = s.device JOIN kernel k ON k.rank = s.rank AND k.device = s.device
WHERE i.ns >= $min_share * s.span AND k.n >= $min_kernels * s.steps AND k.typical <= $short AND s.rank NOT IN (SELECT rank FROM untraced_graph)
UNION ALL
SELECT rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'CUDA graph launches left no GPU rows' FROM untraced_graph
ORDER BY 1, 2
