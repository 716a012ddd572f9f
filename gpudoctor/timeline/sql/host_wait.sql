-- host_wait: every time the host waits for a GPU in a step: synchronising calls, copies that return late, spinning queries.
-- Queries spin only on threads that launch work: watchdogs poll events too, and nobody waits for them.
-- `count` is 0 for a copy whose waiting belongs to the synchronisation right after it (what `.item()` does).
CREATE OR REPLACE TABLE host_wait AS
WITH copies AS (
    SELECT rank, corr, any_value(copy_kind) AS copy_kind, bool_or(dst_mem = 'pageable') AS to_pageable, sum(bytes)::BIGINT AS bytes, any_value(device) AS device, any_value(stream) AS stream
    FROM op WHERE kind = 'memcpy' AND copy_kind = 'd2h' AND corr IS NOT NULL GROUP BY rank, corr
), calls AS (
    SELECT h.*, c.copy_kind, c.to_pageable, c.bytes, c.device, c.stream,
        lead(h.kind) OVER w AS next_kind, lead(h.start) OVER w AS next_start,
        h.start - lag(h."end") OVER w AS pause, lag(h.kind) OVER w AS last_kind
    FROM host_call h LEFT JOIN copies c ON c.rank = h.rank AND c.corr = h.corr AND h.kind = 'memcpy_async'
    WHERE h.kind IN ('stream_sync', 'device_sync', 'event_sync', 'query', 'event_record', 'stream_wait') OR c.corr IS NOT NULL
    WINDOW w AS (PARTITION BY h.rank, h.tid ORDER BY h.start, h."end", h.corr, h.kind)
), runs AS (
    SELECT rank, tid, min(name_id) AS name_id, min(start) AS start, max("end") AS "end", min(corr) AS corr, min(step) AS step, bool_or(warmup) AS warmup, count(*) AS count
    FROM (SELECT *, sum(CASE WHEN last_kind = 'query' AND pause < 100000 THEN 0 ELSE 1 END) OVER (PARTITION BY rank, tid ORDER BY start, "end", corr, kind ROWS UNBOUNDED PRECEDING) AS run
          FROM calls WHERE kind = 'query' OR last_kind = 'query')
    WHERE kind = 'query' GROUP BY rank, tid, run HAVING count(*) >= 10
), spins AS (
    SELECT r.* FROM runs r SEMI JOIN (SELECT DISTINCT rank, tid FROM op WHERE tid IS NOT NULL) t ON t.rank = r.rank AND t.tid = r.tid
    WHERE NOT EXISTS (SELECT 1 FROM op o WHERE o.rank = r.rank AND o.tid = r.tid AND o.launch BETWEEN r.start AND r."end")
), waits AS (
    SELECT rank, tid, kind, name_id, start, "end", "end" - start AS ns, corr, step, warmup, 1 AS count, NULL::BIGINT AS bytes, NULL::BIGINT AS device, NULL::BIGINT AS stream
    FROM calls WHERE kind IN ('stream_sync', 'device_sync', 'event_sync')
    UNION ALL
    SELECT rank, tid, 'copy', name_id, start, "end", "end" - start, corr, step, warmup,
        CASE WHEN next_kind IN ('stream_sync', 'device_sync', 'event_sync') AND next_start - "end" < 1000000 THEN 0 ELSE 1 END, bytes, device, stream
    FROM calls WHERE kind = 'memcpy_async' AND copy_kind = 'd2h' AND (to_pageable OR next_kind = 'stream_sync' AND next_start - "end" < 1000000 AND bytes <= 4096)
    UNION ALL
    SELECT rank, tid, 'spin', name_id, start, "end", "end" - start, corr, step, warmup, count, NULL, NULL, NULL FROM spins
), framework AS (
    SELECT v.rank, v.tid, v.start, v."end", n.text FROM nvtx v JOIN name n USING (name_id)
    WHERE regexp_matches(n.text, '^(gloo|nccl|mpi|ucc):|^DistributedDataParallel\.forward$|^enumerate\(DataLoader\)|^Optimizer\.(step|zero_grad)#|^GradScaler\.step$')
), slots AS (  -- milliseconds in which an operator that takes no longer than one may begin and still hold a wait
    SELECT DISTINCT rank, tid, unnest([start // 1000000, start // 1000000 - 1]) AS ms FROM waits
), copying AS (
    SELECT o.rank, o.tid, o.start, o."end", n.text
    FROM cpu_op o JOIN name n USING (name_id)
    WHERE n.text IN ('aten::item', 'aten::_local_scalar_dense', 'aten::nonzero', 'aten::is_nonzero', 'aten::equal', 'aten::copy_', 'aten::_to_copy')
), operator AS (
    FROM copying WHERE "end" - start > 1000000
    UNION ALL
    FROM copying c SEMI JOIN slots s ON s.rank = c.rank AND s.tid = c.tid AND s.ms = c.start // 1000000 WHERE c."end" - c.start <= 1000000
), placed AS (
    SELECT w.*, f.text AS range, f."end" >= w."end" AS in_range
    FROM waits w ASOF LEFT JOIN framework f ON w.rank = f.rank AND w.tid = f.tid AND w.start >= f.start
)
SELECT p.rank, p.tid, p.kind, p.name_id, p.start, p."end", p.ns, p.corr, p.step, p.warmup, p.count, p.bytes, p.device, p.stream,
    s.path, s.line, s.func, s.callee,
    CASE WHEN o."end" >= p."end" THEN o.text END AS operator,
    CASE WHEN s.corr IS NOT NULL THEN s.by_library OR s.path IS NULL
        ELSE coalesce(p.in_range, false) AND (p.kind = 'event_sync' OR NOT starts_with(p.range, 'DistributedDataParallel')) END AS by_library
FROM placed p
LEFT JOIN call_site s ON s.rank = p.rank AND s.corr = p.corr
ASOF LEFT JOIN operator o ON p.rank = o.rank AND p.tid = o.tid AND p.start >= o.start;
