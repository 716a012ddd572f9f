-- Where most bytes come from pageable memory, h2d-pageable names the cause.
WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(copy_exposed) AS copy_exposed,
        sum(concurrent) AS concurrent, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), copies AS (
    SELECT rank, device, copy_kind, sum(bytes) AS bytes, sum("end" - start) AS ns, count(*) AS n, coalesce(sum(bytes) FILTER (src_mem = 'pageable' OR dst_mem = 'pageable'), 0) AS pageable, quantile_cont(bytes * 1e9 / ("end" - start), 0.9) FILTER (bytes >= 1048576) AS best
    FROM op WHERE kind = 'memcpy' AND copy_kind IN ('h2d', 'd2h') AND step IS NOT NULL AND NOT warmup AND "end" > start GROUP BY rank, device, copy_kind
), traffic AS (
    SELECT rank, device, sum(bytes) AS bytes, sum(ns) AS ns, sum(n) AS n, sum(pageable) AS pageable, max(best) AS best, arg_max(copy_kind, ns) AS main,
        string_agg(copy_kind || ' ' || round(bytes * 1e9 / ns / 1e9, 1) || ' GB/s', ', ' ORDER BY copy_kind) AS rates FROM copies GROUP BY rank, device
), limits AS (
    -- lanes times the rate of a lane, less a tenth for packets
    SELECT device, max(CASE pcie_gen_max WHEN 3 THEN 0.985e9 WHEN 4 THEN 1.969e9 WHEN 5 THEN 3.938e9 WHEN 6 THEN 7.56e9 END * pcie_width_max * 0.9) AS most FROM gpu GROUP BY device
)
SELECT s.rank, s.device, s.start_ns, s.end_ns, b.n::BIGINT AS count, s.copy_exposed::BIGINT AS cost_ns, (b.bytes / s.steps)::BIGINT AS bytes_per_step, b.bytes * 1e9 / b.ns AS rate, b.rates,
    b.best, l.most AS link_limit, s.copy_exposed / s.span AS share, (s.copy_exposed / s.steps)::BIGINT AS exposed_per_step,
    '{bytes_per_step:B} a step go between host and {ranks} at {rate:B/s}' || CASE WHEN l.most IS NOT NULL THEN ' of {link_limit:B/s}' ELSE '' END ||
    ': {exposed_per_step:ns} a step ({share:%}) in which the GPU only copies' AS message
FROM steady s JOIN traffic b ON b.rank = s.rank AND b.device = s.device LEFT JOIN limits l ON l.device = s.device
WHERE s.copy_exposed >= $min_share * s.span AND b.pageable < 0.5 * b.bytes
ORDER BY s.rank, s.device
