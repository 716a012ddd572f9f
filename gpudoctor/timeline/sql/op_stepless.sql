-- op_stepless: `op` of a capture without steps.
CREATE OR REPLACE TABLE op AS
SELECT g.rank, g.device, g.context, g.stream, g.kind, g.name_id, g.start, g."end", g.corr, CASE WHEN g.bytes BETWEEN 0 AND 1000000000000000 THEN g.bytes END AS bytes, g.copy_kind, g.src_mem, g.dst_mem,
    coalesce(g.graph_node, g.graph) AS graph, a.tid, a.start AS launch, a."end" AS launched, NULL::BIGINT AS step, false AS warmup
FROM gpu_op g LEFT JOIN launch_call a ON a.rank = g.rank AND a.corr = g.corr
    WHERE g."end" - g.start < 1000000000000000;
