-- op: GPU work with its launching call and the step that launched it. Work that was launched before the capture began has no step;
-- where a capture has no launches at all, the work's own start decides. What lasts eleven days or moves a petabyte is not believed.
CREATE OR REPLACE TABLE op AS
WITH launched AS (
    SELECT g.rank, g.device, g.context, g.stream, g.kind, g.name_id, g.start, g."end", g.corr, CASE WHEN g.bytes BETWEEN 0 AND 1000000000000000 THEN g.bytes END AS bytes, g.copy_kind, g.src_mem, g.dst_mem,
        coalesce(g.graph_node, g.graph) AS graph, a.tid, a.start AS launch, a."end" AS launched,
        coalesce(a.start, CASE WHEN NOT EXISTS (SELECT 1 FROM launch_call) THEN g.start END) AS moment
    FROM gpu_op g LEFT JOIN launch_call a ON a.rank = g.rank AND a.corr = g.corr
    WHERE g."end" - g.start < 1000000000000000
)
SELECT l.* EXCLUDE moment, s.step, coalesce(s.warmup, false) AS warmup
FROM launched l LEFT JOIN step_slot s ON s.rank = l.rank AND s.slot = l.moment // (SELECT any_value(width) FROM step_slot) AND l.moment >= s.start AND l.moment < s."end";
