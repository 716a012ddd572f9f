WITH steady AS (
    SELECT rank, count(*) AS steps FROM traced_step WHERE NOT warmup GROUP BY rank
), moved AS (
    SELECT rank, corr, any_value(device) AS device, any_value(stream) AS stream, sum(bytes) AS bytes, any_value(copy_kind) AS copy_kind,
        any_value(src_mem) AS src_mem, any_value(dst_mem) AS dst_mem
    FROM op WHERE kind = 'memset' AND corr IS NOT NULL GROUP BY rank, corr
), site AS (
    SELECT h.rank, m.device, m.stream, s.path, s.line, min(h.start) AS start_ns, max(h."end") AS end_ns, count(*) AS count, max(m.bytes) AS bytes,
        coalesce(sum(h."end" - h.start) FILTER (NOT h.warmup), 0) AS cost_ns, count(DISTINCT h.step) FILTER (NOT h.warmup) AS hit,
        any_value(m.copy_kind) AS copy_kind, any_value(m.dst_mem) AS dst_mem
    FROM host_call h LEFT JOIN moved m ON m.rank = h.rank AND m.corr = h.corr
    LEFT JOIN call_site s ON s.rank = h.rank AND s.corr = h.corr
    WHERE h.kind = 'memset' AND h.step IS NOT NULL GROUP BY h.rank, m.device, m.stream, s.path, s.line
)
SELECT s.rank, s.device, s.stream, s.start_ns, s.end_ns, s.count, s.cost_ns::BIGINT AS cost_ns, s.path, s.line, coalesce(s.bytes, 0) AS bytes,
    coalesce(s.copy_kind, '') AS direction, coalesce(s.dst_mem, 'unknown') AS memory, (s.cost_ns / t.steps)::BIGINT AS ns, t.steps
FROM site s JOIN steady t USING (rank)
WHERE s.hit >= $min_steps_share * t.steps
ORDER BY s.rank, s.device, s.stream, s.path, s.line
