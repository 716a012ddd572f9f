-- untraced_graph: ranks whose CUDA graph launches left no GPU rows: their GPU time cannot be judged.
CREATE OR REPLACE TABLE untraced_graph AS
SELECT a.rank, count(*) AS launches, min(a.start) AS start, max(a."end") AS "end"
FROM api a JOIN kind_of_name k USING (name_id)
WHERE k.call_kind = 'graph_launch' AND NOT EXISTS (SELECT 1 FROM gpu_op g WHERE g.rank = a.rank AND g.corr = a.corr)
GROUP BY a.rank
HAVING count(*) > (SELECT count(DISTINCT g.corr) FROM gpu_op g WHERE g.rank = a.rank AND coalesce(g.graph_node, g.graph) IS NOT NULL);
