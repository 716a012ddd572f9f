WITH home AS (
  SELECT rank, min(host) AS host FROM transport WHERE host IS NOT NULL AND rank IS NOT NULL GROUP BY rank HAVING count(DISTINCT host) = 1
), hit AS (
  SELECT t.rank, t.path, t.line, t.rank || ' <-> ' || t.peer || ' via ' || t.detail AS text, least(t.rank, t.peer) || '-' || greatest(t.rank, t.peer) AS pair, t.detail, a.host
  FROM transport AS t JOIN home AS a ON a.rank = t.rank JOIN home AS b ON b.rank = t.peer
  WHERE t.kind = 'NET' AND a.host = b.host AND t.rank <> t.peer
)
SELECT rank, first_value(h.path) OVER w AS path, first_value(h.line) OVER w AS line,
  CASE WHEN h.path = first_value(h.path) OVER w AND max(h.line) OVER (PARTITION BY h.path) - min(h.line) OVER (PARTITION BY h.path) + 1 = count(*) OVER (PARTITION BY h.path) THEN max(h.line) OVER (PARTITION BY h.path) END AS end_line,
  h.path AS log, h.line AS log_line, text AS log_text, list(h.line) OVER (PARTITION BY h.path ORDER BY h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS lines, (SELECT string_agg(DISTINCT pair, ', ' ORDER BY pair) FROM hit) AS pairs, first_value(detail) OVER w AS detail, first_value(host) OVER w AS host
FROM hit AS h
WINDOW w AS (ORDER BY h.path, h.line ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
ORDER BY log, log_line
