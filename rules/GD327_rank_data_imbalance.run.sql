WITH share AS (
  SELECT rank, avg(samples / nullif(micro_batches, 0)) AS samples, count(*) AS steps FROM step WHERE source = 'probe' AND samples > 0 AND NOT coalesce(warmup, false) GROUP BY rank
), span AS (
  SELECT min(samples) AS least, max(samples) AS most, count(*) AS ranks, min(steps) AS steps, arg_max(rank, samples) AS heavy FROM share
)
SELECT s.rank, s.samples, p.least, p.most, p.heavy, p.steps AS count, p.most / p.least AS ratio
FROM span AS p JOIN share AS s ON s.rank = p.heavy
WHERE p.ranks > 1 AND p.steps >= $min_steps AND p.most > $ratio * p.least
ORDER BY s.rank
