-- step_time: what each device did in each step [ns]: `span` from the step's first work to the next step's, `busy` with anything,
-- `idle` with nothing, `comm` with a comm kernel, `hidden` of it under compute kernels, `exposed` not, `copy_exposed` with copies only.
CREATE OR REPLACE TABLE step_time AS
SELECT rank, device, step, bool_or(warmup) AS warmup, min(start) AS start, max("end") AS "end",
    sum("end" - start)::BIGINT AS span,
    coalesce(sum("end" - start) FILTER (comm + compute + copy > 0), 0)::BIGINT AS busy,
    coalesce(sum("end" - start) FILTER (comm + compute + copy = 0), 0)::BIGINT AS idle,
    count(*) FILTER (comm + compute + copy = 0) AS gaps,
    coalesce(sum("end" - start) FILTER (compute > 0), 0)::BIGINT AS compute,
    coalesce(sum("end" - start) FILTER (comm > 0), 0)::BIGINT AS comm,
    coalesce(sum("end" - start) FILTER (comm > 0 AND compute > 0), 0)::BIGINT AS hidden,
    coalesce(sum("end" - start) FILTER (comm > 0 AND compute = 0), 0)::BIGINT AS exposed,
    coalesce(sum("end" - start) FILTER (copy > 0 AND comm + compute = 0), 0)::BIGINT AS copy_exposed,
    coalesce(sum("end" - start) FILTER (comm + compute + copy > 1), 0)::BIGINT AS concurrent
FROM segment WHERE step IS NOT NULL GROUP BY rank, device, step;
