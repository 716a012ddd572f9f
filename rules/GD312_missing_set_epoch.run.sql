WITH pass AS (
  SELECT *, lag(index_fingerprint) OVER w AS before, lag(sampler_epoch) OVER w AS epoch_before, lag(batches) OVER w AS batches_before
  FROM loader WHERE training AND sharded AND shuffle AND index_fingerprint IS NOT NULL AND complete
  WINDOW w AS (PARTITION BY rank, loader_id ORDER BY epoch, index_fingerprint)
)
SELECT rank, path, line, count(*) + 1 AS count, any_value(sampler) AS sampler,
  'the sampler handed out the same order in ' || count(*) + 1 || ' epochs: set_epoch() was not called' AS message
FROM pass
WHERE before = index_fingerprint AND batches_before = batches AND epoch_before = sampler_epoch
GROUP BY rank, loader_id, path, line
ORDER BY rank, loader_id, path, line
