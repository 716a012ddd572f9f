-- race_cause: races of one kind by the work that came first and the stream that did not wait for it.
-- One wait behind that work mends every later access of the stream: the place is that of the first access in forward.
CREATE OR REPLACE TABLE race_cause AS
WITH seen AS (
    SELECT *, path || ':' || line AS place, coalesce(split_part(first_stack, ' in ', 1), other, path || ':' || line) AS producer FROM race
), ranked AS (
    SELECT *, producer = place AS at_producer, row_number() OVER (PARTITION BY kind, rank, producer, second_stream ORDER BY producer = place, step, count DESC, line) AS n FROM seen
), whole AS (
    SELECT kind, rank, producer, second_stream, sum(count)::BIGINT AS count, max(bytes) AS bytes, count(DISTINCT (path, line, other)) AS places, bool_and(coalesce(sure, true)) AS sure
    FROM seen GROUP BY kind, rank, producer, second_stream
)
SELECT w.rank, w.kind, w.second_stream AS stream, r.path, r.line, r.other, w.count, w.bytes, w.places, w.sure, r.first_op, r.second_op, r.first_stack, r.second_stack,
    '`' || r.second_op || '`' || CASE WHEN r.at_producer THEN coalesce(' (' || r.other || ')', '') ELSE '' END || ' ' || r.second_access || ' {bytes:B} that `' || r.first_op || '` ' || r.first_access
        || ' on another stream' || CASE WHEN r.at_producer THEN '' ELSE coalesce(' (' || r.other || ')', '') END AS story
FROM whole w JOIN ranked r ON r.n = 1 AND r.kind = w.kind AND r.rank IS NOT DISTINCT FROM w.rank AND r.producer IS NOT DISTINCT FROM w.producer AND r.second_stream IS NOT DISTINCT FROM w.second_stream;
