WITH failed AS (
  SELECT rank, path, line, text FROM log_line
  WHERE regexp_matches(text, '(?i)no (usable )?(socket|ip|network) ?interfaces? (was )?found|no interface found|unable to find (interface|address) for')
), asked AS (
  SELECT rank, path, line, name || ' set to ' || value AS text, name, value FROM env_var
  WHERE name IN ('NCCL_SOCKET_IFNAME', 'GLOO_SOCKET_IFNAME', 'NCCL_COMM_ID') AND path IS NOT NULL AND (SELECT count(*) FROM failed) > 0
), hit AS (
  SELECT rank, path, line, text FROM failed UNION ALL SELECT rank, path, line, text FROM asked
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line,
  CASE WHEN h.path = first_value(h.path) OVER w AND max(h.line) OVER (PARTITION BY h.path) - min(h.line) OVER (PARTITION BY h.path) + 1 = count(*) OVER (PARTITION BY h.path) THEN max(h.line) OVER (PARTITION BY h.path) END AS end_line,
  h.path AS log, h.line AS log_line, text AS log_text, list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines,
  coalesce((SELECT min(name) FROM asked), 'NCCL_SOCKET_IFNAME') AS variable, coalesce((SELECT min(value) FROM asked), '(unset)') AS value
FROM hit AS h
WINDOW w AS (ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
