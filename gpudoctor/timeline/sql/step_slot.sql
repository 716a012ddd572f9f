-- step_slot: the steps once more, cut by slots of equal time, so that work finds its step by an equal slot and few comparisons,
-- where a join by nearest time would sort all work. A slot is about a step long; a step far longer than the others fills a hundred for each of them at most.
CREATE OR REPLACE TABLE step_slot AS
WITH span AS (
    SELECT rank, step, warmup, start, lead(start) OVER (PARTITION BY rank ORDER BY start, step NULLS FIRST) AS "end" FROM step_span
), lasting AS (
    FROM span WHERE step IS NOT NULL AND "end" > start
), slots AS (
    SELECT greatest(median("end" - start)::BIGINT, (sum("end" - start) // (100 * count(*)))::BIGINT, 1) AS width FROM lasting
)
SELECT l.*, s.width, unnest(range(l.start // s.width, (l."end" - 1) // s.width + 1)) AS slot FROM lasting l, slots s;
