WITH pair AS (
  SELECT step, min(scale) AS low, max(scale) AS high, arg_min(rank, scale) AS low_rank, arg_max(rank, scale) AS high_rank
  FROM (SELECT * FROM amp ORDER BY step, rank) WHERE scale IS NOT NULL GROUP BY step HAVING count(DISTINCT rank) > 1 AND min(scale) < max(scale)
), first AS (SELECT *, count(*) OVER () AS steps FROM pair QUALIFY step = min(step) OVER ())
SELECT a.rank, f.step, f.low, f.high, f.low_rank, f.high_rank, f.steps AS count, 'scale' AS group_key
FROM amp AS a JOIN first AS f USING (step)
ORDER BY a.rank
