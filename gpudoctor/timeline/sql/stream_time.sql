-- stream_time: what each stream did in steady steps [ns], to see how work is spread and what runs beside what.
CREATE OR REPLACE VIEW stream_time AS
SELECT rank, device, context, stream, count(*) AS ops, sum("end" - start)::BIGINT AS busy,
    coalesce(sum("end" - start) FILTER (kind = 'kernel'), 0)::BIGINT AS compute, coalesce(sum("end" - start) FILTER (kind = 'comm'), 0)::BIGINT AS comm,
    coalesce(sum("end" - start) FILTER (kind IN ('memcpy', 'memset')), 0)::BIGINT AS copy
FROM op WHERE step IS NOT NULL AND NOT warmup GROUP BY rank, device, context, stream;
