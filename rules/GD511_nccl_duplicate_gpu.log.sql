WITH said AS (
  SELECT coalesce(rank, try_cast(regexp_extract(text, 'rank (\d+) and rank', 1) AS BIGINT)) AS rank, path, line, text,
    regexp_extract(text, 'rank (\d+) and rank (\d+)', ['a', 'b']) AS two, nullif(regexp_extract(text, 'CUDA device (\w+)', 1), '') AS card
  FROM log_line WHERE regexp_matches(text, 'Duplicate GPU detected')
), hit AS (
  SELECT rank, path, line, text,
    CASE WHEN two.a <> '' THEN least(two.a, two.b) || ' and ' || greatest(two.a, two.b) ELSE 'of one host' END AS pair,
    coalesce(' (PCI bus id ' || card || ')', '') AS device_text
  FROM said
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line,
  CASE WHEN h.path = first_value(h.path) OVER w AND max(h.line) OVER (PARTITION BY h.path) - min(h.line) OVER (PARTITION BY h.path) + 1 = count(*) OVER (PARTITION BY h.path) THEN max(h.line) OVER (PARTITION BY h.path) END AS end_line,
  h.path AS log, h.line AS log_line, text AS log_text, list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines, first_value(pair) OVER w AS pair, first_value(device_text) OVER w AS device_text
FROM hit AS h
WINDOW w AS (ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
