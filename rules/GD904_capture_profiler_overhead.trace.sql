WITH stacks AS (
    SELECT rank, count(DISTINCT corr) AS n FROM pystack GROUP BY rank
), pace AS (
    SELECT rank, device, sum(idle) / sum(span) AS idle FROM step_time WHERE NOT warmup GROUP BY rank, device
)
SELECT p.rank, p.device, p.idle AS share
FROM pace p JOIN stacks s USING (rank) WHERE p.idle >= $min_idle
ORDER BY 1, 2
