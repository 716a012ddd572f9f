-- traced_step: steps that the capture saw. A run of thousands of steps may be captured for ten of them: what is counted
-- in the capture is to be divided by these. A step that the rank itself told counts if the capture holds its middle.
CREATE OR REPLACE TABLE traced_step AS
WITH work AS (
    SELECT rank, start, "end" FROM gpu_op UNION ALL SELECT rank, start, "end" FROM api UNION ALL SELECT rank, start, "end" FROM cpu_op UNION ALL SELECT rank, start, "end" FROM nvtx
), seen AS (
    SELECT rank, min(start) AS first, max("end") AS last FROM work WHERE "end" - start < 1000000000000000 GROUP BY rank
)
SELECT s.rank, s.step, s.start, s."end", coalesce(s.warmup, false) AS warmup
FROM step s LEFT JOIN seen w ON w.rank = s.rank
WHERE w.first IS NULL OR s.start IS NULL OR s."end" IS NULL OR s.source IS DISTINCT FROM 'probe' OR (s.start::DOUBLE + s."end"::DOUBLE) / 2 BETWEEN w.first AND w.last;
