WITH steps AS (SELECT rank, count(*) AS steps FROM step GROUP BY rank)
SELECT f.rank, f.path, f.line, sum(f.count) AS count
FROM fact AS f JOIN steps AS s ON s.rank = f.rank
WHERE f.kind = 'autocast-lost'
GROUP BY f.rank, f.path, f.line, s.steps HAVING sum(f.count) >= 3 AND sum(f.count) >= 0.9 * s.steps
ORDER BY f.rank, f.path, f.line
