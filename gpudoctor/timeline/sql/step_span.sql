-- step_span: steps as a function of host time: a row where each step begins, and a row without a step where none follows at once.
CREATE OR REPLACE TABLE step_span AS
SELECT rank, start, step, coalesce(warmup, false) AS warmup FROM step WHERE start IS NOT NULL AND "end" > start
UNION ALL
SELECT s.rank, s."end", NULL, NULL FROM step s
WHERE s."end" > s.start AND NOT EXISTS (SELECT 1 FROM step n WHERE n.rank = s.rank AND n.start <= s."end" AND n."end" > s."end");
