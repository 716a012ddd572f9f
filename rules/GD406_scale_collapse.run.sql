WITH told AS (
  SELECT rank, step, scale, skipped, row_number() OVER (PARTITION BY rank ORDER BY step DESC) AS back FROM amp WHERE scale IS NOT NULL
), whole AS (
  SELECT rank, arg_min(scale, step) AS first, arg_max(scale, step) AS last, max(scale) AS highest, count(*) AS steps,
    count(*) FILTER (WHERE skipped AND back <= $window) AS skipped, count(*) FILTER (WHERE back <= $window) AS "window", bool_or(skipped AND back <= 5) AS still
  FROM told GROUP BY rank
)
SELECT rank, first, last, skipped, "window", 'scale' AS group_key
FROM whole
WHERE log2(highest / greatest(last, 1e-30)) >= $halvings AND still AND skipped >= $share * "window" AND skipped >= 3
ORDER BY rank
