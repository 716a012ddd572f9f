-- gap: when a device had nothing to do inside steps (2 µs and more), what ended it, and what the launching host thread was doing.
-- `late_ns` is the part before the host had launched the next work; `cause`, by the first that fits:
-- sync (the host was waiting when the device ran dry, and came back), alloc, data (a range named like data loading), collective (a host-side collective),
-- launch (the host was launching, 200 µs at most), host (anything else), device (the work was launched, the GPU had to wait).
-- Gaps under 20 µs are launch or device.
CREATE OR REPLACE TABLE gap AS
WITH tied AS (
    SELECT rank, device, start FROM op GROUP BY ALL HAVING count(*) > 1
), first AS (
    FROM op ANTI JOIN tied USING (rank, device, start)
    UNION ALL
    FROM op SEMI JOIN tied USING (rank, device, start)
    QUALIFY row_number() OVER (PARTITION BY rank, device, start ORDER BY launch NULLS LAST, corr, stream, name_id) = 1
), following AS (
    SELECT i.rank, i.device, i.step, i.warmup, i.start, i."end", i.ns, o.corr, o.name_id, o.kind, o.tid, o.launch, o.launched, o.graph, o.step AS next_step, least(greatest(o.launched - i.start, 0), i.ns) AS late_ns
    FROM (SELECT *, "end" - start AS ns FROM idle) i JOIN first o ON o.rank = i.rank AND o.device = i.device AND o.start = i."end"
), data AS (
    SELECT v.rank, v.tid, v.start, v."end" FROM (
        SELECT rank, tid, start, "end", name_id FROM nvtx UNION ALL SELECT rank, tid, start, "end", name_id FROM cpu_op
    ) v JOIN kind_of_name k USING (name_id) WHERE k.data AND v."end" > v.start
), collectives AS (
    SELECT v.rank, v.start, max(v."end") AS "end" FROM nvtx v JOIN name n USING (name_id) WHERE regexp_matches(n.text, '^(gloo|mpi|ucc):') GROUP BY v.rank, v.start
), allocs AS (
    SELECT rank, tid, "end", sum("end" - start) OVER (PARTITION BY rank, tid ORDER BY "end", start, corr ROWS UNBOUNDED PRECEDING) AS so_far
    FROM host_call WHERE kind IN ('alloc', 'free', 'host_alloc', 'host_free', 'map', 'unmap')
), seen AS (
    SELECT f.*, w."end" AS wait_end, d.start AS data_start, d."end" AS data_end, c."end" AS collective_end, c.start AS collective_start,
        coalesce(b.so_far, 0) - coalesce(a.so_far, 0) AS alloc_ns
    FROM (FROM following WHERE ns >= 20000) f
    ASOF LEFT JOIN (SELECT rank, tid, start, "end" FROM host_wait) w ON f.rank = w.rank AND f.tid = w.tid AND f.start >= w.start
    ASOF LEFT JOIN data d ON f.rank = d.rank AND f.tid = d.tid AND f."end" > d.start
    ASOF LEFT JOIN collectives c ON f.rank = c.rank AND f."end" > c.start
    ASOF LEFT JOIN allocs a ON f.rank = a.rank AND f.tid = a.tid AND f.start >= a."end"
    ASOF LEFT JOIN allocs b ON f.rank = b.rank AND f.tid = b.tid AND f."end" >= b."end"
)
SELECT s.rank, s.device, s.step, s.warmup, s.start, s."end", s.ns, s.corr, s.name_id, s.kind, s.tid, s.graph IS NOT NULL AS graph, s.late_ns,
    s.next_step IS DISTINCT FROM s.step AS between_steps,
    CASE
        WHEN s.wait_end BETWEEN s.start AND s."end" AND s."end" - s.wait_end <= 200000 AND s.late_ns > 0 THEN 'sync'
        WHEN s.alloc_ns >= 0.5 * s.ns THEN 'alloc'
        WHEN s.data_end IS NOT NULL AND least(s.data_end, s."end") - greatest(s.data_start, s.start) >= 0.5 * s.ns THEN 'data'
        WHEN s.collective_end IS NOT NULL AND least(s.collective_end, s."end") - greatest(s.collective_start, s.start) >= 0.5 * s.ns THEN 'collective'
        WHEN s.launch IS NULL OR s.late_ns < 0.5 * s.ns THEN 'device'
        WHEN s.ns <= 200000 THEN 'launch'
        ELSE 'host'
    END AS cause
FROM seen s
UNION ALL
SELECT rank, device, step, warmup, start, "end", ns, corr, name_id, kind, tid, graph IS NOT NULL, late_ns, next_step IS DISTINCT FROM step,
    CASE WHEN launch IS NULL OR late_ns < 0.5 * ns THEN 'device' ELSE 'launch' END
FROM following WHERE ns < 20000;
