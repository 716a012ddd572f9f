SELECT rank, path, line, sum(count) AS count, any_value(name) AS model,
  'the forward of `' || any_value(name) || '` went past its DDP wrapper: in ' || sum(count) || ' steps of a rank no gradient was averaged' AS message
FROM fact
WHERE kind = 'ddp-bypassed'
GROUP BY rank, path, line
ORDER BY rank, path, line
