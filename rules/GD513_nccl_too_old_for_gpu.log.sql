WITH failed AS (
  SELECT rank, path, line, text FROM log_line
  WHERE kind = 'nccl' AND regexp_matches(text, 'ncclMaxSharedMem \d+ exceeds device|no kernel image is available|Cuda failure .*(no kernel image|named symbol not found)')
), version AS (
  SELECT rank, path, line, text FROM log_line
  WHERE kind = 'nccl' AND regexp_matches(text, 'NCCL version \d|^version \d+\.\d+\.\d+\+cuda') AND path IN (SELECT path FROM failed)
), hit AS (
  SELECT rank, path, line, text FROM version UNION ALL SELECT rank, path, line, text FROM failed
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line,
  CASE WHEN h.path = first_value(h.path) OVER w AND max(h.line) OVER (PARTITION BY h.path) - min(h.line) OVER (PARTITION BY h.path) + 1 = count(*) OVER (PARTITION BY h.path) THEN max(h.line) OVER (PARTITION BY h.path) END AS end_line,
  h.path AS log, h.line AS log_line, text AS log_text, list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines,
  coalesce((SELECT min(regexp_extract(text, '(\d+\.\d+[\d.]*)', 1)) FROM version), '(unknown version)') AS version, (SELECT min(text) FROM failed) AS story
FROM hit AS h
WINDOW w AS (ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
