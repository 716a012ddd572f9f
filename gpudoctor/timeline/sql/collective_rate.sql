-- collective_rate: bus bandwidth of collectives by size, where the capture tells sizes: bytes over time, times the factor by which
-- a ring of all ranks sends them. Includes the waiting for the last rank.
CREATE OR REPLACE VIEW collective_rate AS
WITH world AS (SELECT greatest(coalesce(max(world_size), 0), count(DISTINCT rank), 2) AS n FROM rank_info)
SELECT o.rank, o.device, k.op, o.bytes, count(*) AS count, median(o."end" - o.start) AS typical_ns, any_value(w.n) AS ranks,
    o.bytes * 1e9 / median(o."end" - o.start) AS rate,
    o.bytes * 1e9 / median(o."end" - o.start) * any_value(CASE k.op WHEN 'all_reduce' THEN 2.0 * (w.n - 1) / w.n WHEN 'broadcast' THEN 1.0 WHEN 'reduce' THEN 1.0 WHEN 'send_recv' THEN 1.0 ELSE 1.0 * (w.n - 1) / w.n END) AS bus_rate
FROM op o JOIN kind_of_name k USING (name_id) CROSS JOIN world w
WHERE o.kind = 'comm' AND o.bytes > 0 AND o."end" > o.start GROUP BY o.rank, o.device, k.op, o.bytes;
