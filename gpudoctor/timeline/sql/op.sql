-- op: GPU work with its launching call and the step that launched it. Work that was launched before the capture began has no step;
-- where a capture has no launches at all, the work's own start decides. What lasts eleven days or moves a petabyte is not believed.
CREATE OR REPLACE TABLE op AS
WITH launched AS (
    SELECT g.rank, g.device, g.context, g.stream, g.kind, g.name_id, g.start, g."end", g.corr, CASE WHEN g.bytes BETWEEN 0 AND 1000000000000000 THEN g.bytes END AS bytes, g.copy_kind, g.src_mem, g.dst_mem,
        coalesce(g.graph_node, g.graph) AS graph, a.tid, a.start AS launch, a."end" AS launched
    FROM gpu_op g LEFT JOIN launch_call a ON a.rank = g.rank AND a.corr = g.corr
    WHERE g."end" - g.start < 1000000000000000
)
SELECT l.*, s.step, coalesce(s.warmup, false) AS warmup
FROM launched l ASOF LEFT JOIN step_span s ON l.rank = s.rank AND coalesce(l.launch, CASE WHEN NOT EXISTS (SELECT 1 FROM launch_call) THEN l.start END) >= s.start;
