WITH hit AS (
  SELECT rank, path, line, text FROM log_line
  WHERE regexp_matches(text, 'IO_PAGE_FAULT|DMAR: .*(fault|error)|ACSCtl:.*ReqRedir\+|Missing \"iommu=pt\"|\bACS\b.*(enabled|redirect)|(IOMMU|iommu) .*(enabled|translat)')
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line,
  CASE WHEN h.path = first_value(h.path) OVER w AND max(h.line) OVER (PARTITION BY h.path) - min(h.line) OVER (PARTITION BY h.path) + 1 = count(*) OVER (PARTITION BY h.path) THEN max(h.line) OVER (PARTITION BY h.path) END AS end_line,
  h.path AS log, h.line AS log_line, text AS log_text, list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines, 'the log shows it: ' || first_value(text) OVER w AS story
FROM hit AS h
WINDOW w AS (ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
