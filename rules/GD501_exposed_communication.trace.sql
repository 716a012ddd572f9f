WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(comm) AS comm, sum(hidden) AS hidden,
        sum(exposed) AS exposed, sum(copy_exposed) AS copy_exposed, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), host AS (
    SELECT rank, device, sum(ns) AS ns FROM gap WHERE NOT warmup AND cause = 'collective' GROUP BY rank, device
), serial AS (
    SELECT rank FROM stream_order WHERE relation = 'comm_after_producer' GROUP BY rank HAVING count(*) FILTER (reason = 'legacy_stream') > 0.5 * count(*)
), waiting AS (
    SELECT rank, sum(wait_ns) AS wait_ns, sum(ns) AS ns FROM collective_wait WHERE NOT warmup GROUP BY rank
), found AS (
    SELECT s.*, s.exposed + coalesce(h.ns, 0) AS lost, w.wait_ns / greatest(w.ns, 1) AS waiting
    FROM steady s LEFT JOIN host h ON h.rank = s.rank AND h.device = s.device LEFT JOIN waiting w ON w.rank = s.rank
    WHERE s.rank NOT IN (SELECT rank FROM serial) AND s.rank NOT IN (SELECT rank FROM untraced_graph)
)
SELECT rank, device, start_ns, end_ns, steps AS count, lost::BIGINT AS cost_ns, (lost / steps)::BIGINT AS exposed_per_step, lost / span AS share,
    hidden / greatest(comm, 1) AS hidden_share, (comm / steps)::BIGINT AS comm_per_step, waiting,
    CASE WHEN waiting > 0.5 THEN '; ' || round(100 * waiting) || ' % of it is waiting for the last rank' ELSE '' END AS most, NULL AS abstain
FROM found WHERE lost >= $min_share * span
UNION ALL
SELECT rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'CUDA graph launches left no GPU rows' FROM untraced_graph
UNION ALL
SELECT r.rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'no training steps were found'
FROM (SELECT DISTINCT rank FROM op WHERE kind = 'comm') r WHERE r.rank NOT IN (SELECT rank FROM steady)
ORDER BY 1, 2
