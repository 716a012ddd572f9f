WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(copy_exposed) AS copy_exposed,
        sum(concurrent) AS concurrent, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), long AS (
    SELECT g.rank, g.device, g.cause, CASE WHEN g.between_steps THEN 'between steps' ELSE 'inside steps' END AS spot,
        sum(g.ns) AS ns, count(*) AS n, max(g.ns) AS longest, min(g.start) AS start_ns, max(g."end") AS end_ns
    FROM gap g WHERE g.ns >= $min_gap AND NOT g.warmup AND g.cause NOT IN ('launch', 'collective') GROUP BY g.rank, g.device, g.cause, spot
)
SELECT s.rank, s.device, l.start_ns, l.end_ns, l.n AS count, CASE WHEN l.cause IN ('data', 'alloc', 'sync') THEN NULL ELSE l.ns::BIGINT END AS cost_ns,
    l.cause || ' ' || l.spot AS group_key, CASE WHEN l.cause IN ('data', 'alloc', 'sync') THEN 'note' END AS severity,
    (l.ns / s.steps)::BIGINT AS ns, l.ns / s.span AS share, l.longest, l.spot, l.cause,
    CASE l.cause WHEN 'data' THEN 'the host was loading data' WHEN 'alloc' THEN 'the host was allocating or freeing memory' WHEN 'sync' THEN 'the host had just come back from waiting for the GPU'
        WHEN 'device' THEN 'the next work was launched already and waited for another stream, device or rank' ELSE 'the host had launched nothing' END AS reason, NULL AS abstain
FROM steady s JOIN long l ON l.rank = s.rank AND l.device = s.device
WHERE l.ns >= $min_share * s.span AND s.rank NOT IN (SELECT rank FROM untraced_graph)
UNION ALL
SELECT rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'CUDA graph launches left no GPU rows' FROM untraced_graph
ORDER BY 1, 2, 7
