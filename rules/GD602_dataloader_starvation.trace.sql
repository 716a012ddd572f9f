WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(copy_exposed) AS copy_exposed,
        sum(concurrent) AS concurrent, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), named AS (
    SELECT rank, device, sum(ns) AS ns, count(*) AS n, min(start) AS start_ns, max("end") AS end_ns FROM gap WHERE cause = 'data' AND NOT warmup GROUP BY rank, device
), between AS (
    SELECT g.rank, g.device, sum(g.ns) AS ns, count(*) AS n, count(DISTINCT g.step) AS hit, min(g.start) AS start_ns, max(g."end") AS end_ns
    FROM gap g WHERE g.cause = 'host' AND g.between_steps AND g.ns >= $min_gap AND NOT g.warmup GROUP BY g.rank, g.device
)
SELECT s.rank, s.device, n.start_ns, n.end_ns, n.n AS count, n.ns::BIGINT AS cost_ns, NULL AS confidence, (n.ns / s.steps)::BIGINT AS ns, n.ns / s.span AS share, NULL AS message
FROM steady s JOIN named n ON n.rank = s.rank AND n.device = s.device
WHERE n.ns >= $min_share * s.span
UNION ALL
SELECT s.rank, s.device, b.start_ns, b.end_ns, b.n, b.ns::BIGINT, 'possible', (b.ns / s.steps)::BIGINT, b.ns / s.span,
    '{ranks} idles {ns:ns} a step ({share:%}) between the last kernel of a step and the first of the next, while the host calls nothing on the GPU: most often it is fetching the next batch'
FROM steady s JOIN between b ON b.rank = s.rank AND b.device = s.device
WHERE b.ns >= $min_share * s.span AND b.hit >= 0.5 * (s.steps - 1) AND s.rank NOT IN (SELECT rank FROM named) AND s.rank NOT IN (SELECT rank FROM untraced_graph)
ORDER BY 1, 2
