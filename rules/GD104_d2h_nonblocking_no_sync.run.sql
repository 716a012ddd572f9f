SELECT rank, path, line, sum(count) AS count, max(bytes) AS bytes, first_stream AS stream,
  CASE WHEN bool_and(coalesce(sure, true)) THEN 'certain' ELSE 'possible' END AS confidence, other,
  first(first_op ORDER BY step, count) AS first_op, first(second_op ORDER BY step, count) AS second_op,
  first(first_stack ORDER BY step, count) AS first_stack, first(second_stack ORDER BY step, count) AS second_stack,
  '`' || first(second_op ORDER BY step, count) || '` reads {bytes:B} on the host while the non-blocking copy' || coalesce(' of ' || other, '') || ' may still be writing them' AS message
FROM race WHERE kind = 'd2h-nonblocking-no-sync'
GROUP BY rank, path, line, other, first_stream
ORDER BY rank, path, line, other, first_stream
