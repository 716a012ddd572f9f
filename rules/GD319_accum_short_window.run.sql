WITH usual AS (
  SELECT rank, mode(micro_batches) AS passes FROM loss WHERE base = 'mean' AND one_line GROUP BY rank
), windows AS (
  SELECT l.*, u.passes FROM loss AS l JOIN usual AS u USING (rank) WHERE l.base = 'mean' AND l.uniform AND u.passes >= 2 AND abs(l.factor * u.passes - 1) < 1e-6
)
SELECT rank, path, line, any_value(passes) AS window, min(micro_batches) FILTER (WHERE micro_batches < passes) AS short,
  count(*) FILTER (WHERE micro_batches < passes) AS count,
  count(*) FILTER (WHERE micro_batches < passes) || ' steps had only ' || min(micro_batches) FILTER (WHERE micro_batches < passes) || ' of ' || any_value(passes)
    || ' micro-batches, and their loss was divided by ' || any_value(passes) || ' all the same' AS message,
  'Divide by the number of micro-batches that the window really has, or drop the rest of the epoch (`drop_last`, a whole number of windows).' AS fix
FROM windows
GROUP BY rank, path, line
HAVING count(*) FILTER (WHERE micro_batches < passes) >= 1 AND count(*) FILTER (WHERE micro_batches = passes) >= 2
ORDER BY rank, path, line
