WITH moved AS (
  SELECT count(*) FILTER (WHERE kind IN ('P2P', 'SHM')) AS inside, count(*) FILTER (WHERE kind IN ('NET', 'COLLNET')) AS outside, count(DISTINCT host) AS hosts FROM transport
), hit AS (
  SELECT rank, path, line, name || ' set to ' || value AS text, name FROM env_var, moved
  WHERE path IS NOT NULL AND name IN ('NCCL_SOCKET_NTHREADS', 'NCCL_NSOCKS_PERTHREAD', 'NCCL_SOCKET_IFNAME', 'NCCL_IB_HCA', 'NCCL_IB_TIMEOUT', 'NCCL_IB_RETRY_CNT', 'NCCL_IB_GID_INDEX', 'NCCL_IB_TC', 'NCCL_IB_SL', 'NCCL_NET_GDR_LEVEL', 'NCCL_CROSS_NIC', 'NCCL_BUFFSIZE_NET') AND inside > 0 AND outside = 0 AND hosts <= 1
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line,
  CASE WHEN h.path = first_value(h.path) OVER w AND max(h.line) OVER (PARTITION BY h.path) - min(h.line) OVER (PARTITION BY h.path) + 1 = count(*) OVER (PARTITION BY h.path) THEN max(h.line) OVER (PARTITION BY h.path) END AS end_line,
  h.path AS log, h.line AS log_line, text AS log_text, list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines, (SELECT string_agg(DISTINCT name, ', ' ORDER BY name) FROM hit) AS names, 'all channels go by P2P or shared memory inside one host' AS why_text
FROM hit AS h
WINDOW w AS (ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
