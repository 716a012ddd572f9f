WITH home AS (
  SELECT rank, max(value)::BIGINT AS device FROM fact WHERE kind = 'model-device' GROUP BY rank HAVING count(DISTINCT value) = 1
), context AS (
  SELECT DISTINCT rank, try_cast(name AS BIGINT) AS device FROM fact WHERE kind = 'cuda-context'
), tensors AS (
  SELECT rank, device, max(peak_reserved) AS bytes FROM mem_sample WHERE device >= 0 GROUP BY rank, device
)
SELECT c.rank, c.device, h.device AS own_device, owner.rank AS owner, coalesce(t.bytes, 0) AS bytes, 'card ' || c.device AS group_key,
  'rank ' || c.rank || ' has a CUDA context on card ' || c.device || ' of rank ' || owner.rank || ', though it works on card ' || h.device AS message
FROM context AS c JOIN home AS h ON h.rank = c.rank AND h.device <> c.device
JOIN home AS owner ON owner.device = c.device AND owner.rank <> c.rank
LEFT JOIN tensors AS t ON t.rank = c.rank AND t.device = c.device
LEFT JOIN tensors AS own ON own.rank = c.rank AND own.device = h.device
WHERE coalesce(t.bytes, 0) <= 0.05 * coalesce(own.bytes, 1e18)
  AND NOT EXISTS (SELECT 1 FROM fact AS f WHERE f.kind = 'load-lands' AND f.rank = c.rank AND f.name = c.device::VARCHAR)
ORDER BY c.rank, c.device, owner.rank
