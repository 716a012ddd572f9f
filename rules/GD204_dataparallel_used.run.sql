SELECT rank, path, line, max(value)::BIGINT AS cards, '`DataParallel` drives ' || max(value)::BIGINT || ' cards from one process and gathers on the first' AS message,
  'Use `DistributedDataParallel(model.to(local_rank), device_ids=[local_rank])` and start the script with `torchrun --nproc-per-node N`.' AS fix
FROM fact WHERE kind = 'dataparallel-used' AND value > 1
GROUP BY rank, path, line
ORDER BY rank, path, line
