WITH steady AS (
    SELECT rank, count(*) AS steps FROM traced_step WHERE NOT warmup GROUP BY rank
), copy AS (
    SELECT o.*, lead(o.launch) OVER (PARTITION BY o.rank, o.tid ORDER BY o.launch, o.corr) AS next_launch
    FROM op o WHERE o.kind = 'memcpy' AND o.copy_kind = 'd2h' AND o.dst_mem = 'pinned' AND o.step IS NOT NULL AND o.graph IS NULL AND o.launched < o."end"
), uploads AS (
    SELECT DISTINCT rank, step, bytes FROM op WHERE kind = 'memcpy' AND copy_kind = 'h2d'
), waits AS (
    SELECT rank, start FROM host_call WHERE kind IN ('stream_sync', 'device_sync', 'event_sync', 'query', 'memcpy')
), reads AS (
    SELECT c.rank, c.tid, c.start FROM cpu_op c JOIN name n USING (name_id) WHERE n.text IN ('aten::item', 'aten::_local_scalar_dense', 'aten::equal', 'aten::is_nonzero')
), seen AS (
    SELECT c.rank, c.device, c.stream, c.step, c.corr, c.bytes, c.start, c."end", w.start AS waited, r.start AS read_at
    FROM copy c
    ASOF LEFT JOIN waits w ON c.rank = w.rank AND c.launched <= w.start
    ASOF LEFT JOIN reads r ON c.rank = r.rank AND c.tid = r.tid AND c.launched <= r.start
    WHERE NOT EXISTS (SELECT 1 FROM uploads u WHERE u.rank = c.rank AND u.step = c.step AND u.bytes = c.bytes)
), early AS (
    SELECT s.*, t.path, t.line FROM seen s LEFT JOIN call_site t ON t.rank = s.rank AND t.corr = s.corr
    WHERE s.read_at < s."end" AND (s.waited IS NULL OR s.waited > s.read_at)
)
SELECT e.rank, e.device, e.stream, min(e.start) AS start_ns, max(e."end") AS end_ns, count(*) AS count, e.path, e.line, 'likely' AS confidence, max(e.bytes) AS bytes,
    (avg(e."end" - e.read_at))::BIGINT AS early_ns,
    '{count:n} device-to-host copies of up to {bytes:B} into pinned memory on {ranks} were still under way when the host read a value, {early_ns:ns} before their end, and nothing in between waited for them' AS message, NULL AS abstain
FROM early e JOIN steady s USING (rank)
GROUP BY e.rank, e.device, e.stream, e.path, e.line, s.steps
HAVING count(DISTINCT e.step) >= 0.5 * s.steps
UNION ALL
SELECT c.rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'the capture does not show when the host reads what was copied'
FROM seen c JOIN steady s USING (rank) WHERE c.rank NOT IN (SELECT rank FROM cpu_op)
GROUP BY c.rank, s.steps HAVING count(DISTINCT c.step) >= 0.5 * s.steps
ORDER BY 1, 2, 3, 7, 8
