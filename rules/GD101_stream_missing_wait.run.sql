-- One wait behind the producer mends every later access of that stream: the finding stands at the first access in forward.
WITH seen AS (
  SELECT *, coalesce(split_part(first_stack, ' in ', 1), other, path || ':' || line) AS producer FROM race WHERE kind = 'stream-missing-wait'
), ranked AS (
  SELECT *, producer = path || ':' || line AS at_producer, row_number() OVER (PARTITION BY rank, producer, second_stream ORDER BY producer = path || ':' || line, step, count DESC, line) AS n FROM seen
), whole AS (
  SELECT rank, producer, second_stream, sum(count) AS count, max(bytes) AS bytes, count(DISTINCT (path, line, other)) AS places,
    CASE WHEN bool_and(coalesce(sure, true)) THEN 'certain' ELSE 'possible' END AS confidence
  FROM seen GROUP BY rank, producer, second_stream
)
SELECT w.rank, r.path, r.line, w.count, w.bytes, w.second_stream AS stream, w.confidence, r.other, r.first_op, r.second_op, r.first_stack, r.second_stack,
  '`' || r.second_op || '`' || CASE WHEN r.at_producer THEN coalesce(' (' || r.other || ')', '') ELSE '' END || ' ' || r.second_access || ' {bytes:B} that `' || r.first_op || '` ' || r.first_access || ' on another stream'
    || CASE WHEN r.at_producer THEN '' ELSE coalesce(' (' || r.other || ')', '') END || ', and nothing orders the two' || CASE WHEN w.places > 1 THEN '; so in ' || (w.places - 1) || ' more place' || CASE WHEN w.places > 2 THEN 's' ELSE '' END ELSE '' END AS message
FROM whole AS w JOIN ranked AS r ON r.rank = w.rank AND r.producer = w.producer AND r.second_stream IS NOT DISTINCT FROM w.second_stream AND r.n = 1
ORDER BY w.rank, r.path, r.line, r.other, w.second_stream
