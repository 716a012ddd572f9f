WITH pass AS (
  SELECT loader_id, epoch, count(DISTINCT rank) AS ranks, count(DISTINCT seed) AS seeds, count(DISTINCT sampler_epoch) AS epochs
  FROM loader WHERE training AND sharded AND shuffle AND seed >= 0
  GROUP BY loader_id, epoch HAVING count(DISTINCT rank) > 1
), bad AS (
  SELECT loader_id, max(seeds) AS seeds, max(epochs) AS epochs, count(*) AS passes FROM pass WHERE seeds > 1 OR epochs > 1 GROUP BY loader_id
)
SELECT l.rank, any_value(l.made_path) AS path, any_value(l.made_line) AS line, count(*) AS count, any_value(l.seed) AS seed,
  CASE WHEN b.seeds > 1 THEN 'the sampler was seeded differently on the ranks' ELSE 'set_epoch() was called with different epochs on the ranks' END || ': shards overlap, and other samples are never seen' AS message
FROM bad AS b JOIN loader AS l ON l.loader_id = b.loader_id AND l.training
GROUP BY l.rank, b.loader_id, b.seeds
ORDER BY l.rank, b.loader_id
