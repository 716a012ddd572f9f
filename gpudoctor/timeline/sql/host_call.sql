-- host_call: calls that may make the host wait or order work (no launches), with the step they lie in.
CREATE OR REPLACE TABLE host_call AS
SELECT a.rank, a.tid, k.call_kind AS kind, a.name_id, a.start, a."end", a.corr, a.status, s.step, coalesce(s.warmup, false) AS warmup
FROM api a
JOIN kind_of_name k USING (name_id)
ASOF LEFT JOIN step_span s ON a.rank = s.rank AND a.start >= s.start
WHERE k.call_kind IS NOT NULL AND k.call_kind NOT IN ('launch', 'memset_async', 'graph_launch') AND a."end" - a.start < 1000000000000000;
