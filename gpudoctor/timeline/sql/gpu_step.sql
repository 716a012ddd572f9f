-- gpu_step: when each step's work ran on each device; a row without a step closes the last one.
CREATE OR REPLACE TABLE gpu_step AS
WITH span AS (
    SELECT rank, device, step, bool_or(warmup) AS warmup, min(start) AS start, max("end") AS "end", count(*) AS ops
    FROM op WHERE step IS NOT NULL GROUP BY rank, device, step
)
SELECT * FROM span
UNION ALL
SELECT rank, device, NULL, false, max("end"), max("end"), 0 FROM span GROUP BY rank, device;
