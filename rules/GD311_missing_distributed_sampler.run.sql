WITH together AS (
  SELECT DISTINCT rank FROM model WHERE kind = 'ddp' AND contains(ranks, ',')
  UNION
  SELECT DISTINCT rank FROM fact WHERE kind = 'grads-reduced-by-hand'
), mine AS (
  SELECT l.* FROM loader AS l JOIN together AS t ON t.rank = l.rank WHERE l.training AND l.batches > 0
), pass AS (
  SELECT loader_id, epoch, count(DISTINCT rank) AS ranks, count(DISTINCT index_fingerprint) AS orders, count(index_fingerprint) AS known,
    count(DISTINCT index_set) AS sets, bool_and(complete) AS complete, min(samples) AS least, max(length) AS length, bool_or(sharded) AS sharded, min(batches) AS batches
  FROM mine GROUP BY loader_id, epoch HAVING count(DISTINCT rank) > 1
), same AS (
  SELECT loader_id, bool_and(orders = 1) AS one_order, count(*) AS passes, bool_or(sharded) AS sharded, max(length) AS length
  FROM pass
  WHERE known = ranks AND batches >= 2 AND ((orders = 1 AND sets = 1) OR (NOT sharded AND complete AND length > 0 AND least >= 0.9 * length))
  GROUP BY loader_id
), loaders AS (
  SELECT m.rank, any_value(m.made_path) AS path, any_value(m.made_line) AS line, any_value(m.sampler) AS sampler, s.one_order, s.sharded, s.length AS samples,
    count(*) AS count, 'loader' || s.loader_id AS group_id
  FROM same AS s JOIN mine AS m ON m.loader_id = s.loader_id
  GROUP BY m.rank, s.loader_id, s.one_order, s.sharded, s.length
), step_batches AS (
  SELECT r.step, count(DISTINCT r.rank) AS ranks, count(DISTINCT r.batch_fingerprint) AS kinds, any_value(r.batch_fingerprint) AS one
  FROM replica AS r JOIN together AS t ON t.rank = r.rank
  WHERE r.model_id = -1 AND r.batch_fingerprint IS NOT NULL
  GROUP BY r.step HAVING count(DISTINCT r.rank) > 1
), batches AS (
  SELECT count(*) AS steps, count(*) FILTER (WHERE kinds = 1) AS same, count(DISTINCT one) AS variety FROM step_batches
)
SELECT rank, path, line, count, sampler, samples,
  CASE WHEN one_order THEN 'error' ELSE 'warning' END AS severity,
  CASE WHEN one_order AND sharded THEN 'its sampler gives every rank the same share: all ranks train on the same batches'
    WHEN one_order THEN 'the loader gives every rank all ' || samples || ' samples in the same order: further ranks add nothing'
    ELSE 'the loader gives every rank all ' || samples || ' samples in each epoch, each in its own order' END AS message,
  CASE WHEN one_order AND sharded THEN 'Give each rank its own number: `DistributedSampler(data, num_replicas=dist.get_world_size(), rank=dist.get_rank())`.'
    ELSE 'Pass `sampler=DistributedSampler(dataset, shuffle=True)` instead of `shuffle`, and call `sampler.set_epoch(epoch)` at the top of each epoch.' END AS fix
FROM loaders
UNION ALL
SELECT t.rank, NULL, NULL, b.same, NULL, NULL,
  CASE WHEN EXISTS (SELECT 1 FROM mine) THEN 'error' ELSE 'warning' END,
  'all ranks were given the same batch in ' || b.same || ' of ' || b.steps || ' steps: further ranks add nothing',
  'Shard the data by rank: a `DistributedSampler`, `dataset[rank::world]`, or a seed that holds the rank.'
FROM batches AS b, together AS t
WHERE b.steps >= 4 AND b.same >= 0.9 * b.steps AND b.variety >= 0.9 * b.steps AND NOT EXISTS (SELECT 1 FROM loaders)
ORDER BY ALL
