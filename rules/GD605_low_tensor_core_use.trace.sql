WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span, sum(busy) AS busy, sum(idle) AS idle, sum(compute) AS compute, sum(copy_exposed) AS copy_exposed,
        sum(concurrent) AS concurrent, min(start) AS start_ns, max("end") AS end_ns
    FROM step_time WHERE NOT warmup GROUP BY rank, device
), matrix AS (
    SELECT o.rank, o.device, o."end" - o.start AS ns, n.text,
        regexp_matches(lower(n.text), 'tensorop|hmma|imma|16816|s1688|wgmma|gmma|nvjet|_h16|h884|s884|bf16|fp16|_half|__half|e4m3|e5m2|tf32|mfma|cijk_.*_(h|b|f8)') AS tensor
    FROM op o JOIN name n USING (name_id)
    WHERE o.kind = 'kernel' AND o.step IS NOT NULL AND NOT o.warmup
        AND regexp_matches(lower(n.text), 'sgemm|dgemm|hgemm|gemm_|_gemm|gemm<|cutlass|xmma|nvjet|cijk|fprop|dgrad|wgrad|convolve|flash|fmha')
        AND NOT regexp_matches(lower(n.text), 'splitkreduce|epilogue')
), plain AS (
    SELECT rank, device, sum(ns) AS matrix_ns, coalesce(sum(ns) FILTER (NOT tensor AND regexp_matches(lower(text), 'sgemm|simt|ffma|f32f32')), 0) AS fp32_ns, count(*) FILTER (NOT tensor) AS n,
        arg_max(text, ns) FILTER (NOT tensor) AS kernel
    FROM matrix GROUP BY rank, device
)
SELECT s.rank, s.device, s.start_ns, s.end_ns, p.n AS count, p.fp32_ns / p.matrix_ns AS share, p.fp32_ns / s.compute AS share_of_compute, left(p.kernel, 120) AS kernel
FROM steady s JOIN plain p ON p.rank = s.rank AND p.device = s.device
WHERE p.fp32_ns >= 0.5 * p.matrix_ns AND p.fp32_ns >= $min_share * s.compute
ORDER BY s.rank, s.device
