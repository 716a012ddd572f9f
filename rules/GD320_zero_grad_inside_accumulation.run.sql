WITH steps AS (SELECT rank, count(*) AS steps FROM step GROUP BY rank)
SELECT f.rank, f.path, f.line, sum(f.count) AS count, max(f.value) AS window,
  'of ' || CAST(max(f.value) AS BIGINT) || ' backward passes for each step zero_grad() threw ' || CAST(max(f.value) - 1 AS BIGINT) || ' away, in ' || sum(f.count) || ' steps' AS message,
  'Call `zero_grad()` once a window, after `step()`.' AS fix
FROM fact AS f JOIN steps AS s ON s.rank = f.rank
WHERE f.kind = 'gradients-discarded'
GROUP BY f.rank, f.path, f.line, s.steps
HAVING sum(f.count) >= 2 AND sum(f.count) >= 0.5 * s.steps
ORDER BY f.rank, f.path, f.line
