WITH held AS (
  SELECT rank, device, max(peak_reserved) AS own, max(total - free) AS used, max(used_by_others) AS others
  FROM mem_sample WHERE device >= 0 GROUP BY rank, device
), home AS (
  SELECT * FROM held QUALIFY row_number() OVER (PARTITION BY rank ORDER BY own DESC, device) = 1
), card AS (
  SELECT h.rank, h.device, h.own, greatest(coalesce(h.used, 0), h.own) AS used, h.others,
    (SELECT avg(s.inputs) FROM mem_sample AS s WHERE s.rank = h.rank AND s.phase = 'step') AS inputs,
    (SELECT sum(numel) FROM param AS p WHERE p.rank = h.rank) AS numel
  FROM home AS h
), pair AS (
  SELECT f.rank AS full_rank, f.device AS full_device, f.used AS full_bytes, f.own AS full_own, f.others, l.rank AS low_rank, l.device AS low_device, l.used AS low_bytes, l.own AS low_own,
    f.inputs AS full_inputs, l.inputs AS low_inputs
  FROM card AS f, card AS l
  WHERE f.rank <> l.rank AND (f.numel IS NULL OR l.numel IS NULL OR abs(f.numel - l.numel) <= 0.05 * greatest(f.numel, l.numel))
    AND f.used - l.used >= $min_bytes AND f.used - l.used >= $share * f.used
    AND NOT EXISTS (SELECT 1 FROM card AS c JOIN card AS d ON c.device = d.device AND c.rank < d.rank)
  QUALIFY row_number() OVER (ORDER BY f.used - l.used DESC, f.rank, l.rank) = 1
), told AS (
  SELECT p.*, (full_bytes - full_own) - (low_bytes - low_own) AS foreign_bytes,
    (SELECT count(*) FROM collective AS c WHERE c.rank = p.full_rank AND c.op LIKE 'gather%') AS gathers
  FROM pair AS p
), caused AS (
  SELECT *, CASE
    WHEN coalesce(others, 0) >= 0.5 * (full_bytes - low_bytes) THEN 'others'
    WHEN foreign_bytes >= 0.5 * (full_bytes - low_bytes) THEN 'outside'
    WHEN full_inputs > 1.1 * low_inputs THEN 'inputs'
    WHEN gathers > 0 THEN 'gathers'
    ELSE 'unknown' END AS why_kind
  FROM told
)
SELECT rank, device, full_rank, full_device, full_bytes, low_rank, low_device, low_bytes, 'cards' AS group_key, CASE why_kind
    WHEN 'others' THEN 'other processes hold {others:B} of it'
    WHEN 'outside' THEN 'the difference is not this rank''s tensors: other processes, or contexts of other ranks, hold {foreign_bytes:B} more there'
    WHEN 'inputs' THEN 'its forward is given {full_inputs:n} elements a step, the other''s {low_inputs:n}'
    WHEN 'gathers' THEN 'it gathers tensors of the other ranks (' || gathers || ' gathers)'
    ELSE 'why is not known: inputs and models are alike' END AS cause,
  CASE why_kind
    WHEN 'others' THEN 'See who else uses the card (`nvidia-smi`), and choose cards with `CUDA_VISIBLE_DEVICES`.'
    WHEN 'outside' THEN 'Call `torch.cuda.set_device(local_rank)` first, and load checkpoints with `map_location`.'
    WHEN 'inputs' THEN 'Give the ranks batches of like size: bucket by length, shuffle before sharding, or balance by tokens.'
    WHEN 'gathers' THEN 'Gather on the host, or in pieces; all-reduce sums instead of gathering predictions.'
    ELSE 'Take an allocator snapshot of both ranks (`torch.cuda.memory._record_memory_history`, `_dump_snapshot`) and give both to `gpudoctor analyze`.' END AS cure,
  others, foreign_bytes, round(full_inputs) AS full_inputs, round(low_inputs) AS low_inputs,
  'device {full_device} of rank {full_rank} holds {full_bytes:B}, device {low_device} of rank {low_rank} {low_bytes:B}: ' || cause AS message, cure AS fix
FROM caused, (SELECT rank, device FROM home) AS h WHERE h.rank IN (full_rank, low_rank)
UNION ALL BY NAME
SELECT 'the ranks ran without a GPU; what their processes hold on the host differs for many reasons and fills no card' AS abstain
WHERE NOT EXISTS (SELECT 1 FROM mem_sample WHERE device >= 0)
ORDER BY rank
