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
), long AS (  -- few columns, since each of the joins below sorts them
    SELECT rank, device, tid, start, "end", ns, late_ns FROM following WHERE ns >= 20000
), found AS (
    SELECT g.rank, g.device, g.start, 1 AS nth, 'sync' AS cause
    FROM long g ASOF JOIN (SELECT rank, tid, start, "end" FROM host_wait) w ON g.rank = w.rank AND g.tid = w.tid AND g.start >= w.start
    WHERE w."end" BETWEEN g.start AND g."end" AND g."end" - w."end" <= 200000 AND g.late_ns > 0
    UNION ALL
    SELECT g.rank, g.device, g.start, 2, 'alloc'
    FROM (FROM long SEMI JOIN allocs USING (rank, tid)) g
    ASOF LEFT JOIN allocs a ON g.rank = a.rank AND g.tid = a.tid AND g.start >= a."end"
    ASOF JOIN allocs b ON g.rank = b.rank AND g.tid = b.tid AND g."end" >= b."end"
    WHERE b.so_far - coalesce(a.so_far, 0) >= 0.5 * g.ns
    UNION ALL
    SELECT g.rank, g.device, g.start, 3, 'data'
    FROM (FROM long SEMI JOIN data USING (rank, tid)) g ASOF JOIN data d ON g.rank = d.rank AND g.tid = d.tid AND g."end" > d.start
    WHERE least(d."end", g."end") - greatest(d.start, g.start) >= 0.5 * g.ns
    UNION ALL
    SELECT g.rank, g.device, g.start, 4, 'collective'
    FROM (FROM long SEMI JOIN collectives USING (rank)) g ASOF JOIN collectives c ON g.rank = c.rank AND g."end" > c.start
    WHERE least(c."end", g."end") - greatest(c.start, g.start) >= 0.5 * g.ns
), host AS (
    SELECT rank, device, start, arg_min(cause, nth) AS cause FROM found GROUP BY rank, device, start
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
