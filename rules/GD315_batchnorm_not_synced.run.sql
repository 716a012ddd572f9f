WITH wrapped AS (
  SELECT rank, model_id, max(batchnorms) AS batchnorms, arg_max(path, coalesce(step, 0)) AS path, arg_max(line, coalesce(step, 0)) AS line
  FROM model WHERE kind = 'ddp' AND contains(ranks, ',') AND NOT broadcast_buffers AND batchnorms > 0 GROUP BY rank, model_id
), apart AS (
  SELECT model_id, step FROM replica WHERE buffer_checksum IS NOT NULL GROUP BY model_id, step HAVING count(DISTINCT buffer_checksum) > 1
), batch AS (
  SELECT rank, median(samples / nullif(micro_batches, 0)) AS samples FROM step WHERE samples > 0 GROUP BY rank
)
SELECT w.rank, w.path, w.line, w.batchnorms, b.samples, count(*) AS count,
  CASE WHEN coalesce(b.samples, 0) <= $small_batch THEN 'warning' ELSE 'note' END AS severity,
  w.batchnorms || ' BatchNorm layers keep statistics of their own on each rank' || coalesce(', from ' || CAST(b.samples AS BIGINT) || ' samples at a time', '') || ': the checkpoint holds those of one rank' AS message
FROM wrapped AS w JOIN apart AS a ON a.model_id = w.model_id LEFT JOIN batch AS b ON b.rank = w.rank
GROUP BY w.rank, w.model_id, w.path, w.line, w.batchnorms, b.samples
HAVING count(*) >= 2
ORDER BY w.rank, w.model_id
