WITH seen AS (
    SELECT side, step, nth, min(rank) FILTER (last_in) AS rank, max(wait_ns) AS lag, min(start) AS start_ns, max("end") AS end_ns FROM collective_wait
    WHERE NOT warmup GROUP BY side, step, nth
), stepped AS (
    -- host-side collectives overlap each other: the longest wait of a step stands for all of them
    SELECT side, step, rank, CASE side WHEN 'host' THEN max(lag) ELSE sum(lag) END AS lag, count(*) AS n, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM seen GROUP BY side, step, rank
), total AS (
    SELECT side, sum(lag) AS lag, count(DISTINCT step) AS steps FROM stepped GROUP BY side
), late AS (
    SELECT side, rank, sum(lag) AS lag, sum(n) AS n, count(DISTINCT step) AS steps, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM stepped GROUP BY side, rank
), pace AS (
    SELECT rank, avg("end" - start) AS ns FROM traced_step WHERE NOT warmup GROUP BY rank
)
SELECT l.rank, l.start_ns, l.end_ns, l.n::BIGINT AS count, l.lag::BIGINT AS cost_ns, l.rank AS last_rank, (l.lag / t.steps)::BIGINT AS lag_per_step,
    l.lag / t.lag AS share_of_waiting, l.lag / t.steps / p.ns AS share, t.steps
FROM late l JOIN total t USING (side) JOIN pace p ON p.rank = l.rank
WHERE l.lag >= $min_part * t.lag AND l.lag >= $min_share * t.steps * p.ns AND l.steps >= 0.5 * t.steps AND t.steps >= 2
ORDER BY l.rank, cost_ns
