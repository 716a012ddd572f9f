WITH drawn AS (
  SELECT DISTINCT rank, worker, "fetch", source, fingerprint, dataset FROM data_rng WHERE "fetch" < 3
), shared AS (
  SELECT a.rank, a.source, a.dataset, a.worker, b.rank AS other_rank, b.worker AS other_worker, count(*) AS fetches
  FROM drawn AS a JOIN drawn AS b ON a.source = b.source AND a."fetch" = b."fetch" AND a.fingerprint = b.fingerprint AND a.dataset = b.dataset
    AND (a.rank <> b.rank OR a.worker <> b.worker)
  GROUP BY ALL
), same_data AS (
  SELECT count(*) > 0 AS yes FROM loader AS a JOIN loader AS b
    ON a.loader_id = b.loader_id AND a.epoch = b.epoch AND a.rank < b.rank AND a.index_fingerprint = b.index_fingerprint AND a.training
)
SELECT rank, source, any_value(dataset) AS dataset, sum(fetches) AS count, source AS group_key,
  CASE WHEN bool_or(rank = other_rank) THEN 'two workers of rank ' || rank ELSE 'ranks ' || least(rank, min(other_rank)) || ' and ' || greatest(rank, min(other_rank)) END
    || ' read `' || any_value(dataset) || '` with the same ' || source || ' random numbers' AS message,
  'Seed each worker from `torch.initial_seed()` in `worker_init_fn`, and put the rank into the seed that augmentation uses (not into the sampler''s).' AS fix
FROM shared CROSS JOIN same_data
WHERE NOT same_data.yes OR rank = other_rank
GROUP BY rank, source
HAVING max(fetches) >= 1
ORDER BY rank, source
