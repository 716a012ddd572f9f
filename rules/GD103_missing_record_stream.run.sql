SELECT rank, path, line, sum(count) AS count, max(bytes) AS bytes, first_stream AS stream,
  CASE WHEN bool_and(coalesce(sure, true)) THEN 'certain' ELSE 'possible' END AS confidence, other,
  first(first_op ORDER BY step, count) AS first_op, first(second_op ORDER BY step, count) AS second_op,
  first(first_stack ORDER BY step, count) AS first_stack, first(second_stack ORDER BY step, count) AS second_stack,
  '`' || first(first_op ORDER BY step, count) || '` uses {bytes:B} on a stream that the allocator was not told of; `' || first(second_op ORDER BY step, count) || '`' || coalesce(' (' || other || ')', '') || ' is given the same memory while that may still run' AS message
FROM race WHERE kind = 'missing-record-stream'
GROUP BY rank, path, line, other, first_stream
ORDER BY rank, path, line, other, first_stream
