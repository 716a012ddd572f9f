-- host_call: calls that may make the host wait or order work (no launches), with the step they lie in.
CREATE OR REPLACE TABLE host_call AS
SELECT a.rank, a.tid, k.call_kind AS kind, a.name_id, a.start, a."end", a.corr, a.status, s.step, coalesce(s.warmup, false) AS warmup
FROM api a
JOIN kind_of_name k USING (name_id)
LEFT JOIN step_slot s ON s.rank = a.rank AND s.slot = a.start // (SELECT any_value(width) FROM step_slot) AND a.start >= s.start AND a.start < s."end"
WHERE k.call_kind IS NOT NULL AND k.call_kind NOT IN ('launch', 'memset_async', 'graph_launch') AND a."end" - a.start < 1000000000000000;
