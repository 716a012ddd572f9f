WITH model AS (
  SELECT rank, sum(numel * CASE dtype WHEN 'float64' THEN 8 WHEN 'float16' THEN 2 WHEN 'bfloat16' THEN 2 ELSE 4 END) AS weights
  FROM (SELECT DISTINCT ON (rank, param_id) rank, param_id, numel, dtype FROM param ORDER BY rank, param_id) GROUP BY rank
), told AS (
  SELECT e.rank, e.device, e.bytes AS asked, e.device_free, e.step, e.path, e.line, count(*) OVER (PARTITION BY e.rank, e.device) AS times, s.allocated AS live, s.reserved, s.largest_free, s.in_pieces, s.total,
    greatest(coalesce(s.total - s.free - s.reserved, 0), 0) AS outside
  FROM mem_event AS e LEFT JOIN mem_sample AS s ON s.rank = e.rank AND s.device = e.device AND s.phase = 'oom' AND s.step = e.step
  WHERE e.action = 'oom' AND e.step IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY e.rank, e.device ORDER BY e.step DESC, e.t DESC, s.t DESC, e.bytes DESC) = 1
)
SELECT t.rank, device, path, line, asked, device_free, live, reserved, largest_free, in_pieces, total, outside, weights, times AS count, 'device ' || device AS group_key,
  CASE WHEN EXISTS (SELECT 1 FROM rank_info AS r WHERE r.rank = t.rank AND r.state = 'done') THEN 'note' END AS severity,
  'rank ' || t.rank || ' ran out of memory on device ' || device || ' in step ' || step || ': {asked:B} were asked for, {device_free:B} were free on the card'
    || CASE WHEN live IS NOT NULL THEN '; live tensors held {live:B} of {reserved:B} reserved' ELSE '' END
    || CASE WHEN weights > 0 THEN ', of which parameters take {weights:B} and gradients as much again' ELSE '' END
    || CASE WHEN in_pieces > 0 THEN ', {in_pieces:B} lay free in pieces, the largest {largest_free:B}' ELSE '' END
    || CASE WHEN outside > 0.1 * total THEN '; {outside:B} were taken outside this process'' allocator' ELSE '' END AS message,
  CASE WHEN in_pieces >= asked THEN 'Enough was free, but in pieces: set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.'
    WHEN outside > 0.25 * total THEN 'Other processes, contexts or libraries hold much of the card: see `nvidia-smi`.'
    ELSE 'The tensors do not fit: lower the batch, accumulate gradients, checkpoint activations or shard the optimizer; `gpudoctor plan MODULE:FACTORY'
      || coalesce(' --gpus ' || (SELECT count(DISTINCT device) FROM mem_sample WHERE device >= 0) || 'x' || round(total / 1e9)::INT || 'GB', '') || '` says which of them fits these cards. capture/memory.rank' || t.rank || '.pickle holds the allocator''s state; `gpudoctor analyze` reads it.' END AS fix
FROM told AS t LEFT JOIN model AS m ON m.rank = t.rank
ORDER BY t.rank, device
