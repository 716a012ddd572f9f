SELECT rank, path, line, count, bytes, stream, CASE WHEN sure THEN 'certain' ELSE 'possible' END AS confidence, other, first_op, second_op, first_stack, second_stack,
  story || '; the event waited for was recorded before that work was launched' || CASE places WHEN 1 THEN '' WHEN 2 THEN '; so in 1 more place' ELSE '; so in ' || (places - 1) || ' more places' END AS message
FROM race_cause WHERE kind = 'stream-wrong-order'
ORDER BY rank, path, line, other, stream
