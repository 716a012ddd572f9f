WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(comm) AS comm, sum(hidden) AS hidden,
        sum(exposed) AS exposed, sum(copy_exposed) AS copy_exposed, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), work AS (
    SELECT rank, device, stream, sum("end" - start) FILTER (kind = 'kernel') AS compute, sum("end" - start) FILTER (kind = 'comm') AS comm,
        count(*) FILTER (kind = 'comm') AS count, coalesce(sum("end" - start) FILTER (kind = 'comm' AND NOT warmup), 0) AS cost_ns, min(start) FILTER (kind = 'comm') AS start_ns, max("end") FILTER (kind = 'comm') AS end_ns
    FROM op WHERE step IS NOT NULL AND graph IS NULL GROUP BY rank, device, stream
), main AS (
    SELECT rank, device, max(compute) AS compute FROM work GROUP BY rank, device
)
SELECT w.rank, w.device, w.stream, w.start_ns, w.end_ns, w.count, w.cost_ns::BIGINT AS cost_ns, w.stream AS stream_id, w.cost_ns / s.span AS share, (w.cost_ns / s.steps)::BIGINT AS comm_per_step
FROM work w JOIN main m ON m.rank = w.rank AND m.device = w.device JOIN steady s ON s.rank = w.rank AND s.device = w.device
WHERE w.count >= s.steps AND w.compute >= 0.5 * m.compute AND w.cost_ns >= $min_share * s.span
ORDER BY w.rank, w.device, w.stream
