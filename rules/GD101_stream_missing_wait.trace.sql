WITH missing AS (
    SELECT o.*, p.text AS producer, k.text AS kernel, s.path, s.line
    FROM stream_order o
    LEFT JOIN name p ON p.name_id = o.producer_name_id
    LEFT JOIN name k ON k.name_id = o.name_id
    LEFT JOIN call_site s ON s.rank = o.rank AND s.corr = o.corr
    WHERE o.verdict = 'missing'
)
SELECT rank, device, stream, min(start) AS start_ns, max(start) AS end_ns, count(*) AS count, path, line, relation AS group_key, confidence,
    CASE WHEN confidence = 'possible' THEN 'warning' ELSE 'error' END AS severity,
    producer_stream, min(producer) AS producer, min(kernel) AS kernel, count(*) FILTER (early_ns > 0) AS early, relation,
    CASE relation
        WHEN 'comm_after_producer' THEN '{count:n} comm kernels on stream {stream_id} of {ranks} do not wait for stream {producer_stream}, whose kernels write the gradients they sum; {early:n} started before their producer had ended'
        WHEN 'optimizer_after_comm' THEN '{count:n} optimizer kernels on stream {stream_id} of {ranks} do not wait for the reductions on stream {producer_stream}; {early:n} started before the reduction had ended'
        WHEN 'consumer_after_copy' THEN 'nothing on stream {stream_id} of {ranks} ever waits for the {count:n} host-to-device copies on stream {producer_stream}; {early:n} kernels started before the copy had ended'
        WHEN 'copy_after_producer' THEN '{count:n} device-to-host copies on stream {stream_id} of {ranks} do not wait for stream {producer_stream}, whose kernels write what they copy'
        ELSE 'stream {stream_id} of {ranks} starts {count:n} times without waiting for stream {producer_stream}, which waits for it afterwards: a join without its fork; what it reads may not be written yet'
    END AS message, stream AS stream_id, NULL AS abstain
FROM missing
GROUP BY rank, device, stream, producer_stream, relation, confidence, path, line
UNION ALL
SELECT rank, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, reason FROM order_gap
ORDER BY rank, relation, stream_id, producer_stream, confidence, path, line
