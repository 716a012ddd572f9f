WITH wrong AS (
    SELECT o.*, p.text AS producer, k.text AS kernel, s.path, s.line
    FROM stream_order o
    LEFT JOIN name p ON p.name_id = o.producer_name_id
    LEFT JOIN name k ON k.name_id = o.name_id
    LEFT JOIN call_site s ON s.rank = o.rank AND s.corr = o.corr
    WHERE o.verdict = 'wrong_order'
)
SELECT rank, device, stream, min(start) AS start_ns, max(start) AS end_ns, count(*) AS count, path, line, relation AS group_key, confidence,
    producer_stream, min(producer) AS producer, min(kernel) AS kernel, count(*) FILTER (early_ns > 0) AS early, relation,
    CASE relation
        WHEN 'comm_after_producer' THEN '{count:n} comm kernels on stream {stream_id} of {ranks} wait for an event that stream {producer_stream} recorded before it was given the last kernel that writes the gradients; {early:n} started before that kernel had ended'
        ELSE '{count:n} optimizer kernels on stream {stream_id} of {ranks} wait for an event that stream {producer_stream} recorded before it was given this step''s reductions; {early:n} started before the reduction had ended'
    END AS message, stream AS stream_id, NULL AS abstain
FROM wrong
GROUP BY rank, device, stream, producer_stream, relation, confidence, path, line
UNION ALL
SELECT rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, reason FROM order_gap
ORDER BY rank, relation, stream_id, producer_stream, confidence, path, line
