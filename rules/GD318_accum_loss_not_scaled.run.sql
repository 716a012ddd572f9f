WITH windows AS (
  SELECT rank, mode(micro_batches) AS passes, count(*) AS steps,
    count(*) FILTER (WHERE base = 'mean' AND uniform AND one_line AND abs(factor - 1) < 1e-6) AS unscaled
  FROM loss GROUP BY rank
), place AS (
  SELECT rank, any_value(path) AS path, any_value(line) AS line FROM loss WHERE one_line GROUP BY rank HAVING count(DISTINCT line) = 1
), last_pass AS (
  SELECT rank, step, max(micro_batch) AS micro_batch FROM bucket WHERE path = 'ddp' GROUP BY rank, step
), handed AS (
  SELECT b.rank, b.step, sum(b.reduced_norm2) AS norm2 FROM bucket AS b JOIN last_pass AS l USING (rank, step, micro_batch) WHERE b.path = 'ddp' GROUP BY b.rank, b.step
), used AS (
  SELECT rank, step, sum(norm * norm) AS norm2 FROM grad_stat WHERE stage = 'reduced' GROUP BY rank, step
), scaled AS (
  SELECT h.rank, median(sqrt(u.norm2 / nullif(h.norm2, 0))) AS ratio FROM handed AS h JOIN used AS u USING (rank, step) GROUP BY h.rank
)
SELECT w.rank, p.path, p.line, w.passes AS window, w.unscaled AS count,
  w.passes || ' backward passes of a mean loss are summed for each step and nothing divides by ' || w.passes AS message,
  'Divide the loss by the number of micro-batches: `(loss / ' || w.passes || ').backward()`.' AS fix
FROM windows AS w JOIN place AS p USING (rank) JOIN scaled AS s USING (rank)
WHERE w.passes >= 2 AND w.unscaled >= 2 AND w.unscaled >= 0.8 * w.steps AND s.ratio > 0.9
ORDER BY w.rank
