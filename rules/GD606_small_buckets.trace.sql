WITH steady AS (
    SELECT rank, device, count(*) AS steps, sum(span) AS span FROM step_time WHERE NOT warmup GROUP BY rank, device
), reduction AS (
    SELECT o.rank, o.device, o.start, o."end", o."end" - o.start AS ns, o.bytes FROM op o JOIN kind_of_name k USING (name_id)
    WHERE o.kind = 'comm' AND k.op IN ('all_reduce', 'reduce_scatter', 'reduce') AND o.step IS NOT NULL AND NOT o.warmup
), many AS (
    SELECT rank, device, count(*) AS n, median(ns) AS typical, sum(ns) AS ns, median(bytes) AS bytes, count(bytes) AS sized, min(start) AS start_ns, max("end") AS end_ns,
        count(*) FILTER (ns <= $short OR bytes <= $small) AS short FROM reduction GROUP BY rank, device
)
SELECT m.rank, m.device, m.start_ns, m.end_ns, m.n AS count, m.ns::BIGINT AS cost_ns, round(m.n / s.steps) AS per_step, m.typical::BIGINT AS typical_ns, m.bytes::BIGINT AS typical_bytes,
    'the gradients on {ranks} are reduced in {per_step:n} collectives a step, half of them shorter than {typical_ns:ns}' || CASE WHEN m.sized = m.n THEN ' and at most {typical_bytes:B}' ELSE '' END AS message
FROM many m JOIN steady s ON s.rank = m.rank AND s.device = m.device
WHERE m.n >= $min_count * s.steps AND m.short >= 0.7 * m.n
ORDER BY m.rank, m.device
