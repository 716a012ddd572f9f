-- segment: GPU time cut where any work starts or ends, with how many comm kernels, compute kernels and copies (and memsets) ran in each cut.
-- Cuts of one (rank, device) follow each other without gaps or overlaps; a cut with three zeros is idle.
CREATE OR REPLACE TABLE segment AS
WITH edge AS (
    SELECT rank, device, start AS t, (kind = 'comm')::BIGINT AS comm, (kind = 'kernel')::BIGINT AS compute, (kind NOT IN ('comm', 'kernel'))::BIGINT AS copy
    FROM op WHERE "end" > start
    UNION ALL
    SELECT rank, device, "end", -(kind = 'comm')::BIGINT, -(kind = 'kernel')::BIGINT, -(kind NOT IN ('comm', 'kernel'))::BIGINT
    FROM op WHERE "end" > start
), change AS (
    SELECT rank, device, t, sum(comm) AS comm, sum(compute) AS compute, sum(copy) AS copy FROM edge GROUP BY rank, device, t
), cut AS (
    SELECT rank, device, t AS start, lead(t) OVER w AS "end",
        (sum(comm) OVER w)::BIGINT AS comm, (sum(compute) OVER w)::BIGINT AS compute, (sum(copy) OVER w)::BIGINT AS copy
    FROM change WINDOW w AS (PARTITION BY rank, device ORDER BY t)
)
SELECT c.*, g.step, coalesce(g.warmup, false) AS warmup
FROM cut c ASOF LEFT JOIN gpu_step g ON c.rank = g.rank AND c.device = g.device AND c.start >= g.start
WHERE c."end" IS NOT NULL;
