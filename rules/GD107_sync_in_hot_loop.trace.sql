WITH steady AS (
    SELECT rank, count(*) AS steps, sum("end" - start) AS ns FROM traced_step WHERE NOT warmup GROUP BY rank
), exact AS (  -- nsys names the line of the call; Kineto the first of the function, and the report looks for the line in it
    SELECT DISTINCT unnest(range(rank, rank + ranks)) AS rank FROM capture WHERE kind = 'nsys'
), passed AS (
    SELECT rank, count(*) AS steps FROM traced_step GROUP BY rank
), launching AS (
    SELECT DISTINCT rank, tid FROM op WHERE kind IN ('kernel', 'comm') AND tid IS NOT NULL
), wait AS (
    SELECT w.*, CASE WHEN w.kind = 'copy' AND w.count = 0 THEN 'copy and stream_sync' ELSE n.text END AS call,
        coalesce(w.path IS NOT NULL OR w.operator IN ('aten::item', 'aten::_local_scalar_dense', 'aten::nonzero', 'aten::is_nonzero', 'aten::equal'), false) AS named
    FROM host_wait w LEFT JOIN name n ON n.name_id = w.name_id
    ASOF LEFT JOIN (SELECT rank, tid, launch, copy_kind, src_mem FROM op WHERE tid IS NOT NULL AND launch IS NOT NULL) before
        ON before.rank = w.rank AND before.tid = w.tid AND w.start >= before.launch
    WHERE w.step IS NOT NULL AND NOT w.by_library
        -- What waits for the pageable copy just made belongs to that copy: h2d-pageable.
        AND NOT coalesce(w.kind = 'stream_sync' AND before.copy_kind = 'h2d' AND before.src_mem = 'pageable', false)
        -- A thread that launches no kernels (gloo's, which copies through the host) waits on its own.
        AND (w.rank NOT IN (SELECT rank FROM launching) OR w.tid IS NULL OR (w.rank, w.tid) IN (SELECT (rank, tid) FROM launching))
), site AS (
    SELECT rank, path, line, any_value(func) AS func, CASE WHEN path IS NULL THEN CASE WHEN kind = 'copy' AND count = 0 THEN 'stream_sync' ELSE kind END ELSE '' END AS cause,
        min(start) AS start_ns, max("end") AS end_ns, sum(count) AS count, coalesce(sum(ns) FILTER (NOT warmup), 0) AS cost_ns,
        count(DISTINCT step) FILTER (NOT warmup) AS hit, bool_or(named) AS named, min(operator) AS operator,
        string_agg(DISTINCT regexp_replace(call, '(_v\d+|_ptsz)+$', ''), ', ' ORDER BY regexp_replace(call, '(_v\d+|_ptsz)+$', '')) FILTER (call NOT LIKE 'copy and%') AS calls
    FROM wait GROUP BY rank, path, line, cause
)
SELECT s.rank, s.start_ns, s.end_ns, s.count::BIGINT AS count, s.cost_ns::BIGINT AS cost_ns, s.path, s.line, s.cause AS group_key,
    CASE WHEN s.count >= 4 * a.steps AND s.cost_ns >= $warn_share * t.ns THEN 'warning' ELSE 'perf' END AS severity,
    s.calls, s.func, s.operator, a.steps, round(s.count / a.steps, 1) AS per_step, (s.cost_ns / t.steps)::BIGINT AS wait_per_step, s.cost_ns / t.ns AS share,
    CASE WHEN e.rank IS NOT NULL THEN s.line END AS end_line, NULL AS abstain
FROM site s JOIN steady t USING (rank) JOIN passed a USING (rank) LEFT JOIN exact e USING (rank)
WHERE s.hit >= $min_steps_share * t.steps AND s.count > 0 AND (s.named OR s.cause <> 'event_sync' OR s.cost_ns >= $min_event_share * t.ns)
UNION ALL
SELECT r.rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'no training steps were found'
FROM (SELECT DISTINCT rank FROM host_call WHERE kind IN ('stream_sync', 'device_sync', 'event_sync', 'query')) r WHERE r.rank NOT IN (SELECT rank FROM steady)
ORDER BY 1, 5 DESC NULLS LAST, 6, 7, 8
