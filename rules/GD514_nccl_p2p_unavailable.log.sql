WITH off AS (
  SELECT rank, path, line, name || ' set to ' || value AS text, name FROM env_var WHERE path IS NOT NULL AND ((name = 'NCCL_P2P_DISABLE' AND value = '1') OR (name = 'NCCL_P2P_LEVEL' AND upper(value) IN ('LOC', '0')))
), bridged AS (
  SELECT path FROM log_line WHERE kind = 'nccl' AND regexp_matches(text, '\bNVL\b|NVLINK|NVLink') AND NOT regexp_matches(text, 'set by environment|P2P is disabled between NVLINK')
), refused AS (
  SELECT rank, path, line, text FROM log_line WHERE regexp_matches(text, 'P2P is disabled between connected GPUs|Could not enable P2P between dev')
), staged AS (
  SELECT rank, path, line, rank || ' -> ' || peer || ' via ' || detail AS text, least(rank, peer) || '-' || greatest(rank, peer) AS pair
  FROM transport WHERE kind = 'SHM'
), hit AS (
  SELECT rank, path, line, text FROM off WHERE (SELECT count(*) FROM staged) > 0
  UNION ALL SELECT rank, path, line, text FROM refused
  UNION ALL SELECT rank, path, line, text FROM staged WHERE (SELECT count(*) FROM off) = 0 OR (SELECT count(*) FROM bridged) = 0
), allowed AS (
  SELECT * FROM hit WHERE (SELECT count(*) FROM off) = 0 OR (SELECT count(*) FROM bridged) = 0
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line,
  CASE WHEN h.path = first_value(h.path) OVER w AND max(h.line) OVER (PARTITION BY h.path) - min(h.line) OVER (PARTITION BY h.path) + 1 = count(*) OVER (PARTITION BY h.path) THEN max(h.line) OVER (PARTITION BY h.path) END AS end_line,
  h.path AS log, h.line AS log_line, text AS log_text, list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines,
  coalesce('ranks ' || (SELECT string_agg(DISTINCT pair, ', ' ORDER BY pair) FROM staged), 'some pairs') AS pairs,
  CASE WHEN (SELECT count(*) FROM off) > 0 THEN ' because ' || (SELECT min(text) FROM off) ELSE '' END AS why_text
FROM allowed AS h
WINDOW w AS (ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
