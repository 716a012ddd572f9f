WITH steady AS (
    SELECT rank, count(*) AS steps, sum("end" - start) AS ns FROM traced_step WHERE NOT warmup GROUP BY rank
), site AS (
    SELECT o.rank, o.device, o.stream, s.path, s.line, min(o.start) AS start_ns, max(o."end") AS end_ns, count(*) AS count, sum(o.bytes) AS total,
        min(o.bytes) AS least, max(o.bytes) AS bytes, sum(o."end" - o.start) AS gpu_ns, sum(o.launched - o.launch) AS host_ns,
        coalesce(sum(greatest(o.launched - o.launch, o."end" - o.start)) FILTER (NOT o.warmup), 0) AS cost_ns,
        count(DISTINCT o.step) FILTER (NOT o.warmup) AS hit
    FROM op o LEFT JOIN call_site s ON s.rank = o.rank AND s.corr = o.corr
    WHERE o.kind = 'memcpy' AND o.copy_kind = 'h2d' AND o.src_mem = 'pageable' AND o.bytes >= $min_bytes AND o.step IS NOT NULL
    GROUP BY o.rank, o.device, o.stream, s.path, s.line
)
SELECT s.rank, s.device, s.stream, s.start_ns, s.end_ns, s.count, s.cost_ns::BIGINT AS cost_ns, s.path, s.line, '' AS group_key,
    s.bytes, s.total::BIGINT AS total, s.gpu_ns::BIGINT AS gpu_ns, s.host_ns::BIGINT AS host_ns, (s.host_ns / s.count)::BIGINT AS host_each,
    s.total * 1e9 / greatest(s.gpu_ns, 1) AS rate, CASE WHEN s.least = s.bytes THEN '' ELSE 'up to ' END AS most, NULL AS abstain
FROM site s JOIN steady t USING (rank)
WHERE s.hit >= $min_steps_share * t.steps
UNION ALL
SELECT r.rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'no training steps were found'
FROM (SELECT DISTINCT rank FROM op WHERE copy_kind = 'h2d' AND src_mem = 'pageable' AND bytes >= $min_bytes) r WHERE r.rank NOT IN (SELECT rank FROM steady)
ORDER BY 1, 2, 3, 8, 9
