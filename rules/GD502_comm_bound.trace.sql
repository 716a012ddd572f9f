WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(comm) AS comm, sum(hidden) AS hidden,
        sum(exposed) AS exposed, sum(copy_exposed) AS copy_exposed, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), transfer AS (
    SELECT rank, sum(transfer_ns) AS ns FROM collective_wait WHERE NOT warmup AND side = 'gpu' GROUP BY rank
), sent AS (
    SELECT o.rank, o.device, sum(o.bytes) AS bytes, sum(o.bytes * CASE k.op WHEN 'all_reduce' THEN 2.0 ELSE 1.0 END) AS moved, sum(o."end" - o.start) AS ns
    FROM op o JOIN kind_of_name k USING (name_id) WHERE o.kind = 'comm' AND o.step IS NOT NULL AND NOT o.warmup AND o.bytes IS NOT NULL GROUP BY o.rank, o.device
), world AS (
    SELECT greatest(coalesce(max(world_size), 0), count(DISTINCT rank), 2) AS n FROM rank_info
), link_limit AS (
    SELECT min(pcie_rate) AS rate FROM gpu
    HAVING count(*) = (SELECT count(DISTINCT device) FROM steady) AND count(pcie_rate) = count(*) AND count(DISTINCT host) = 1 AND coalesce(max(nvlinks), 0) = 0
), rated AS (
    SELECT b.rank, b.device, b.bytes, b.moved * (w.n - 1) / w.n * 1e9 / b.ns AS bus_rate FROM sent b CROSS JOIN world w
)
SELECT s.rank, s.device, s.start_ns, s.end_ns, s.steps AS count, s.exposed::BIGINT AS cost_ns, (s.exposed / s.steps)::BIGINT AS exposed_per_step,
    (coalesce(t.ns, s.comm) / s.steps)::BIGINT AS comm_per_step, (s.compute / s.steps)::BIGINT AS compute_per_step, s.exposed / s.span AS share,
    (b.bytes / s.steps)::BIGINT AS bytes_per_step, b.bus_rate, l.rate AS link_rate, b.bus_rate / l.rate AS of_link, NULL AS abstain,
    'communication takes {comm_per_step:ns} a step on {ranks} and compute {compute_per_step:ns}: even perfect overlap cannot hide it' ||
    CASE WHEN b.bytes IS NOT NULL THEN '; {bytes_per_step:B} a step at {bus_rate:B/s} on the bus' ELSE '' END ||
    CASE WHEN b.bus_rate / l.rate >= 0.6 THEN ', {of_link:%} of what the cards'' PCIe links move ({link_rate:B/s}): the link is the limit'
         WHEN b.bus_rate / l.rate < 0.6 THEN ', only {of_link:%} of what the cards'' PCIe links move ({link_rate:B/s}): `gpudoctor env` shows the way that NCCL goes' ELSE '' END AS message
FROM steady s LEFT JOIN link_limit l ON true LEFT JOIN transfer t ON t.rank = s.rank LEFT JOIN rated b ON b.rank = s.rank AND b.device = s.device
WHERE s.comm > 0 AND coalesce(t.ns, s.comm) >= s.compute AND s.exposed >= $min_share * s.span AND s.rank NOT IN (SELECT rank FROM untraced_graph)
UNION ALL
SELECT rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'CUDA graph launches left no GPU rows', NULL FROM untraced_graph
ORDER BY 1, 2
