SELECT rank, path, line, sum(count) AS count, max(bytes) AS bytes, second_stream AS stream,
  CASE WHEN bool_and(coalesce(sure, true)) THEN 'certain' ELSE 'possible' END AS confidence, other,
  first(first_op ORDER BY step, count) AS first_op, first(second_op ORDER BY step, count) AS second_op,
  first(first_stack ORDER BY step, count) AS first_stack, first(second_stack ORDER BY step, count) AS second_stack,
  '`' || first(second_op ORDER BY step, count) || '` ' || first(second_access ORDER BY step, count) || ' {bytes:B} that `' || first(first_op ORDER BY step, count) || '` ' || first(first_access ORDER BY step, count) || ' on another stream' || coalesce(' (' || other || ')', '') || '; the event waited for was recorded before that work was launched' AS message
FROM race WHERE kind = 'stream-wrong-order'
GROUP BY rank, path, line, other, second_stream
ORDER BY rank, path, line, other, second_stream
