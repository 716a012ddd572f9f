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
), following AS MATERIALIZED (
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
), host AS (  -- few columns, since each of the joins sorts them
    SELECT f.rank, f.device, f.start,
        CASE
            WHEN w."end" BETWEEN f.start AND f."end" AND f."end" - w."end" <= 200000 AND f.late_ns > 0 THEN 'sync'
            WHEN coalesce(b.so_far, 0) - coalesce(a.so_far, 0) >= 0.5 * f.ns THEN 'alloc'
            WHEN d."end" IS NOT NULL AND least(d."end", f."end") - greatest(d.start, f.start) >= 0.5 * f.ns THEN 'data'
            WHEN c."end" IS NOT NULL AND least(c."end", f."end") - greatest(c.start, f.start) >= 0.5 * f.ns THEN 'collective'
        END AS cause
    FROM (SELECT rank, device, tid, start, "end", ns, late_ns FROM following WHERE ns >= 20000) f
    ASOF LEFT JOIN (SELECT rank, tid, start, "end" FROM host_wait) w ON f.rank = w.rank AND f.tid = w.tid AND f.start >= w.start
    ASOF LEFT JOIN data d ON f.rank = d.rank AND f.tid = d.tid AND f."end" > d.start
    ASOF LEFT JOIN collectives c ON f.rank = c.rank AND f."end" > c.start
    ASOF LEFT JOIN allocs a ON f.rank = a.rank AND f.tid = a.tid AND f.start >= a."end"
    ASOF LEFT JOIN allocs b ON f.rank = b.rank AND f.tid = b.tid AND f."end" >= b."end"
)
SELECT f.rank, f.device, f.step, f.warmup, f.start, f."end", f.ns, f.corr, f.name_id, f.kind, f.tid, f.graph IS NOT NULL AS graph, f.late_ns,
    f.next_step IS DISTINCT FROM f.step AS between_steps,
    CASE
        WHEN h.cause IS NOT NULL THEN h.cause
        WHEN f.launch IS NULL OR f.late_ns < 0.5 * f.ns THEN 'device'
        WHEN f.ns <= 200000 THEN 'launch'
        ELSE 'host'
    END AS cause
FROM following f LEFT JOIN host h ON h.rank = f.rank AND h.device IS NOT DISTINCT FROM f.device AND h.start = f.start;
