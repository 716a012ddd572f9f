WITH spent AS (
  SELECT rank, path, line, sum("end" - start) AS ns FROM collective WHERE path IS NOT NULL GROUP BY rank, path, line
)
SELECT f.rank, f.path, f.line, sum(f.count) AS count, max(s.ns) AS cost_ns,
  'gradients that DDP had averaged were all-reduced again, ' || sum(f.count) || ' times on a rank' AS message
FROM fact AS f LEFT JOIN spent AS s ON s.rank = f.rank AND s.path = f.path AND s.line = f.line
WHERE f.kind = 'redundant-all-reduce'
GROUP BY f.rank, f.path, f.line
ORDER BY f.rank, f.path, f.line
