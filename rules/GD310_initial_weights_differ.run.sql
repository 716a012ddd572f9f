WITH alike AS (
  SELECT DISTINCT rank, model_id, ranks AS together FROM model WHERE kind = 'ddp' AND contains(ranks, ',')
  UNION
  SELECT DISTINCT rank, TRY_CAST(name AS BIGINT), 'by hand' FROM fact WHERE kind = 'grads-reduced-by-hand'
), seen AS (
  SELECT a.together, r.model_id, r.step, r.rank, r.param_checksum FROM replica AS r JOIN alike AS a ON a.rank = r.rank AND a.model_id = r.model_id
  WHERE r.param_checksum IS NOT NULL
), state AS (
  SELECT together, model_id, step, count(DISTINCT rank) AS ranks, count(DISTINCT param_checksum) AS kinds FROM seen GROUP BY together, model_id, step HAVING count(DISTINCT rank) > 1
), history AS (
  SELECT together, model_id, min(step) AS first_seen, min(step) FILTER (WHERE kinds > 1) AS first_apart, count(*) FILTER (WHERE kinds > 1) AS apart FROM state GROUP BY together, model_id
), common AS (
  SELECT together, model_id, step, param_checksum, count(*) AS holders FROM seen GROUP BY together, model_id, step, param_checksum
), majority AS (
  SELECT together, model_id, step, arg_max(param_checksum, holders) AS checksum, max(holders) AS holders FROM common GROUP BY together, model_id, step
)
SELECT s.rank, h.first_apart AS step, h.apart AS steps_apart, h.together AS group_key, h.apart AS count,
  'the ranks held different weights when the first step was seen (step ' || h.first_apart || ')' AS message,
  'Broadcast once before training: `for p in model.parameters(): dist.broadcast(p.data, src=0)`, and the buffers; load checkpoints on every rank.' AS fix
FROM history AS h
JOIN seen AS s ON s.together = h.together AND s.model_id = h.model_id AND s.step = h.first_apart
WHERE h.first_apart = h.first_seen AND h.first_seen <= $latest
ORDER BY s.rank
