WITH total AS (
  SELECT rank, step, sqrt(sum(norm * norm)) AS norm FROM grad_stat WHERE stage = 'reduced' AND norm IS NOT NULL GROUP BY rank, step
), early AS (
  SELECT rank, median(norm) AS usual, count(*) AS steps, max(step) AS last FROM (SELECT *, row_number() OVER (PARTITION BY rank ORDER BY step) AS n, count(*) OVER (PARTITION BY rank) AS total FROM total)
  WHERE n <= greatest(4, total / 4) GROUP BY rank
)
SELECT t.rank, min(t.step) AS step, e.usual, max(t.norm) AS norm, count(*) AS count
FROM total AS t JOIN early AS e ON e.rank = t.rank AND t.step > e.last
WHERE e.steps >= 4 AND e.usual > 0 AND t.norm > $times * e.usual
GROUP BY t.rank, e.usual HAVING count(*) >= 2
ORDER BY t.rank
