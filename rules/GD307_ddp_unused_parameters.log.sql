WITH hit AS (
  SELECT rank, path, line, text, 'error' AS severity, 'DDP waits for a gradient that never came: some parameters took no part in the loss' AS message
  FROM log_line WHERE regexp_matches(text, 'Expected to have finished reduction in the prior iteration')
  UNION ALL
  SELECT rank, path, line, text, 'perf', 'find_unused_parameters=True finds nothing, and every step pays for the search'
  FROM log_line WHERE regexp_matches(text, 'find_unused_parameters=True was specified.*did not find any unused parameters')
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line, h.path AS log, h.line AS log_line, text AS log_text,
  list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines, severity, message, message AS group_key
FROM hit AS h
WINDOW w AS (PARTITION BY message ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
