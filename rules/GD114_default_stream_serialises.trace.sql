WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(copy_exposed) AS copy_exposed,
        sum(concurrent) AS concurrent, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), held AS (
    SELECT rank, device, producer_stream, stream, count(*) AS n, min(start) AS start_ns, max(start) AS end_ns
    FROM stream_order WHERE reason = 'legacy_stream' AND relation = 'neighbour' AND step IS NOT NULL GROUP BY rank, device, producer_stream, stream
), pair AS (
    SELECT h.rank, h.device, least(h.producer_stream, h.stream) AS a, greatest(h.producer_stream, h.stream) AS b, sum(h.n) AS n, min(h.start_ns) AS start_ns, max(h.end_ns) AS end_ns
    FROM held h GROUP BY ALL
), work AS (
    SELECT rank, device, stream, sum("end" - start) AS ns FROM op WHERE step IS NOT NULL AND NOT warmup GROUP BY rank, device, stream
)
SELECT p.rank, p.device, p.b AS stream, p.start_ns, p.end_ns, p.n AS count, least(x.ns, y.ns)::BIGINT AS cost_ns, p.a AS first_stream, p.b AS second_stream,
    (least(x.ns, y.ns) / s.steps)::BIGINT AS overlap_per_step, least(x.ns, y.ns) / s.span AS share
FROM pair p JOIN work x ON x.rank = p.rank AND x.device = p.device AND x.stream = p.a JOIN work y ON y.rank = p.rank AND y.device = p.device AND y.stream = p.b
JOIN steady s ON s.rank = p.rank AND s.device = p.device
WHERE least(x.ns, y.ns) >= $min_share * s.span AND p.n >= s.steps
ORDER BY p.rank, p.device, p.a, p.b
