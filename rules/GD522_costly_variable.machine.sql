WITH known(name, pattern, effect, severity) AS (VALUES
  ('CUDA_LAUNCH_BLOCKING', '^[^0]', 'every kernel launch waits for the kernel, nothing overlaps', 'perf'),
  ('PYTORCH_NO_CUDA_MEMORY_CACHING', '^[^0]', 'every tensor calls cudaMalloc and cudaFree, which synchronise', 'perf'),
  ('PYTORCH_NO_HIP_MEMORY_CACHING', '^[^0]', 'every tensor calls hipMalloc and hipFree, which synchronise', 'perf'),
  ('TORCH_DISTRIBUTED_DEBUG', '(?i)^detail$', 'every collective is checked by further collectives', 'perf'),
  ('TORCH_NCCL_BLOCKING_WAIT', '^[^0]', 'the host waits for every collective', 'perf'),
  ('NCCL_BLOCKING_WAIT', '^[^0]', 'the host waits for every collective', 'perf'),
  ('TORCH_CUDA_SANITIZER', '^[^0]', 'every kernel is checked on the host, about four times slower', 'perf'),
  ('NCCL_DEBUG', '(?i)^trace$', 'NCCL writes a line for every call and step', 'perf'),
  ('NCCL_SHM_DISABLE', '^[^0]', 'cards without P2P talk over sockets', 'warning'),
  ('CUDA_DEVICE_MAX_CONNECTIONS', '^1$', 'launches of different streams share one hardware queue, which pays only for tensor parallelism', 'note'),
  ('NCCL_ALGO', '.', 'NCCL no longer chooses the algorithm by size and topology', 'note'),
  ('NCCL_PROTO', '.', 'NCCL no longer chooses the protocol by size and topology', 'note'))
SELECT any_value(e.rank) AS rank, e.name, e.value, k.effect, k.severity, e.name AS group_key
FROM env_var AS e JOIN known AS k ON k.name = e.name
WHERE regexp_matches(e.value, k.pattern)
GROUP BY e.name, e.value, k.effect, k.severity
ORDER BY e.name, e.value
