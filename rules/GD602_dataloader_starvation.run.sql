WITH loaders AS (
  SELECT rank, max(num_workers) AS workers, any_value(made_path) AS path, any_value(made_line) AS line FROM loader WHERE training GROUP BY rank HAVING count(DISTINCT loader_id) = 1
), waits AS (
  SELECT s.rank, median(s.data_ns) AS wait_ns, median(s.data_ns / nullif(s."end" - s.start, 0)) AS share, sum(s.data_ns) AS cost_ns, count(*) AS steps
  FROM step AS s WHERE NOT coalesce(s.warmup, false) AND s.source = 'probe' GROUP BY s.rank
)
SELECT w.rank, l.path, l.line, w.cost_ns, w.share, w.steps AS count, l.workers,
  'a rank waits for its next batch during ' || round(100 * w.share) || ' % of a step (' || round(w.wait_ns / 1e6, 1) || ' ms)'
    || CASE WHEN l.workers = 0 THEN ', which the training process loads by itself' ELSE ', with ' || l.workers || ' workers' END AS message,
  CASE WHEN l.workers = 0 THEN 'Give the loader `num_workers`, `persistent_workers=True` and `prefetch_factor`, so that batches are made while the step runs.'
    ELSE 'Add workers, or make fetching cheaper: decode once, cache, smaller files, faster storage.' END AS fix
FROM waits AS w JOIN loaders AS l ON l.rank = w.rank
WHERE w.steps >= 6 AND w.share > $share AND w.wait_ns > $wait_ms * 1e6
ORDER BY w.rank
