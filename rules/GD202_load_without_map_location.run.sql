WITH home AS (
  SELECT rank, max(value)::BIGINT AS device FROM fact WHERE kind = 'model-device' GROUP BY rank HAVING count(DISTINCT value) = 1
)
SELECT f.rank, f.path, f.line, try_cast(f.name AS BIGINT) AS device, sum(coalesce(f.count, 1)) AS count, max(f.value) AS bytes,
  'this load puts {bytes:B} of ' || string_agg(DISTINCT 'rank ' || f.rank, ', ') || ' on device ' || f.name || ', though its model is on device ' || coalesce(h.device::VARCHAR, f.detail) AS message,
  'Pass `map_location="cpu"`, or the rank''s own device, to `torch.load`.' AS fix
FROM fact AS f LEFT JOIN home AS h USING (rank)
WHERE f.kind = 'load-lands' AND f.name <> coalesce(h.device::VARCHAR, f.detail)
GROUP BY f.rank, f.path, f.line, f.name, h.device, f.detail
ORDER BY f.rank, f.path, f.line, f.name
