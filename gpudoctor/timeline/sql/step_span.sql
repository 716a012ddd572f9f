-- step_span: steps as a function of host time: a row where each step begins, and a row without a step where none follows at once.
CREATE OR REPLACE TABLE step_span AS
WITH known AS (
    SELECT rank, start, "end", step, warmup, lead(start) OVER (PARTITION BY rank ORDER BY start, "end", step) AS next
    FROM traced_step WHERE start IS NOT NULL AND "end" > start AND "end" - start < 1000000000000000
)
SELECT rank, start, step, warmup FROM known
UNION ALL
SELECT rank, "end", NULL, NULL FROM known WHERE next IS NULL OR next > "end";
