WITH world AS (
  SELECT count(DISTINCT rank) AS ranks FROM step
), course AS (
  SELECT s.rank, s.step, s.lr, s.scheduler_steps, max(s.lr) OVER p AS top, min(s.lr) OVER p AS bottom, count(*) OVER p AS steps,
    last_value(s.lr) OVER (PARTITION BY s.rank ORDER BY s.step ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS final
  FROM step AS s WHERE s.lr IS NOT NULL
  WINDOW p AS (PARTITION BY s.rank)
), told AS (
  SELECT rank, any_value(steps) AS steps, any_value(top) AS top, any_value(final) AS final, any_value(bottom) AS bottom, mode(scheduler_steps) FILTER (WHERE scheduler_steps > 0) AS ticks,
    count(*) FILTER (WHERE scheduler_steps > 0) AS ticking, min(step) FILTER (WHERE lr <= bottom + 1e-3 * (top - bottom)) AS at_end
  FROM course GROUP BY rank
)
SELECT t.rank, t.ticks AS ticks, t.at_end AS step, t.steps, t.ticks AS count,
  'the scheduler advances ' || t.ticks || ' times for each optimizer step, once for each rank: the learning rate reached its end at step ' || t.at_end || ' of ' || t.steps AS message,
  'Give the schedule its length in scheduler steps, `total_steps * num_processes`, or step it once for each optimizer step.' AS fix
FROM told AS t, world AS w
WHERE w.ranks >= 2 AND t.ticks = w.ranks AND t.ticking >= 0.8 * t.steps AND t.steps >= 8 AND t.top > 0 AND t.bottom <= 0.05 * t.top
  AND t.at_end <= 0.75 * t.steps AND (t.final <= t.bottom + 1e-3 * t.top OR t.final >= 0.5 * t.top)
ORDER BY t.rank
