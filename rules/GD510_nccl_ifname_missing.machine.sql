WITH asked AS (
  SELECT rank, name, value, trim(unnest(string_split(ltrim(value, '^='), ','))) AS part FROM env_var
  WHERE name IN ('NCCL_SOCKET_IFNAME', 'GLOO_SOCKET_IFNAME') AND value <> '' AND value NOT LIKE '^%'
), there AS (
  SELECT text FROM machine_fact WHERE name = 'interface'
)
SELECT any_value(rank) AS rank, name AS variable, value, name AS group_key, (SELECT string_agg(text, ', ' ORDER BY text) FROM there) AS interfaces
FROM asked
WHERE (SELECT count(*) FROM there) > 0
GROUP BY name, value
HAVING count(*) FILTER (WHERE EXISTS (SELECT 1 FROM there WHERE there.text = split_part(part, ':', 1) OR (value NOT LIKE '=%' AND starts_with(there.text, split_part(part, ':', 1))))) = 0
ORDER BY name, value
