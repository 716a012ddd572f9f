WITH split AS (
  SELECT step, count(*) OVER () AS steps FROM amp GROUP BY step
  HAVING count(DISTINCT rank) > 1 AND bool_or(skipped) AND NOT bool_and(skipped)
), first AS (SELECT min(step) AS step, max(steps) AS steps FROM split)
SELECT a.rank, f.step, f.steps AS broken_steps, 'inf' AS group_key,
  'rank ' || (SELECT string_agg(rank::VARCHAR, ', ' ORDER BY rank) FROM amp WHERE step = f.step AND skipped) AS skipping,
  'rank ' || (SELECT string_agg(rank::VARCHAR, ', ' ORDER BY rank) FROM amp WHERE step = f.step AND NOT skipped) AS stepping
FROM first AS f JOIN amp AS a ON a.step = f.step
ORDER BY a.rank
