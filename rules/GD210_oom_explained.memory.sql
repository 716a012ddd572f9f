WITH oom AS (
  SELECT *, count(*) OVER (PARTITION BY rank, device) AS times FROM mem_event WHERE action = 'oom' AND seq IS NOT NULL
    AND rank NOT IN (SELECT rank FROM mem_event WHERE action = 'oom' AND step IS NOT NULL)
  QUALIFY row_number() OVER (PARTITION BY rank, device ORDER BY seq DESC) = 1
), segment AS (
  SELECT rank, device, segment, sum(bytes) AS total, coalesce(sum(bytes) FILTER (WHERE state <> 'inactive'), 0) AS live, max(bytes) FILTER (WHERE state = 'inactive') AS largest
  FROM mem_block GROUP BY rank, device, segment
), held AS (
  SELECT rank, device, sum(total)::BIGINT AS reserved, sum(live)::BIGINT AS live, coalesce(sum(total - live) FILTER (WHERE live > 0), 0)::BIGINT AS in_pieces, max(largest) FILTER (WHERE live > 0) AS largest_free
  FROM segment GROUP BY rank, device
), frame AS (
  SELECT rank, stack_id, first(file ORDER BY depth) AS file, first(line ORDER BY depth) AS line FROM mem_stack
  WHERE NOT regexp_matches(file, '[/\\](site|dist)-packages[/\\]|[/\\]torch[/\\]|^<') GROUP BY rank, stack_id
), holder AS (
  SELECT b.rank, b.device, f.file, f.line, sum(b.bytes)::BIGINT AS bytes FROM mem_block AS b JOIN frame AS f USING (rank, stack_id) WHERE b.state <> 'inactive'
  GROUP BY b.rank, b.device, f.file, f.line
), top AS (
  SELECT * FROM holder QUALIFY row_number() OVER (PARTITION BY rank, device ORDER BY bytes DESC, file, line) = 1
)
SELECT o.rank, o.device, f.file AS path, f.line, o.bytes AS asked, o.device_free, h.live, h.reserved, h.in_pieces, h.largest_free, o.times AS count, w.bytes AS top_bytes, 'device ' || o.device AS group_key,
  'memory ran out on device ' || o.device || ': {asked:B} were asked for' || CASE WHEN o.device_free IS NOT NULL THEN ', {device_free:B} were free on the card' ELSE '' END
    || '; at the snapshot live tensors hold {live:B} of {reserved:B} reserved' || CASE WHEN h.in_pieces > 0 THEN ', {in_pieces:B} lie free in pieces, the largest {largest_free:B}' ELSE '' END
    || CASE WHEN w.bytes IS NOT NULL THEN '; most, {top_bytes:B}, comes from ' || w.file || ':' || w.line ELSE '' END AS message,
  CASE WHEN h.in_pieces >= o.bytes THEN 'Enough is free, but in pieces: set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`.'
    WHEN o.device_free > 2 * o.bytes THEN 'The card had room: a limit was set (`set_per_process_memory_fraction`), or the driver could not map more.'
    ELSE 'The tensors do not fit: lower the batch, accumulate gradients, checkpoint activations or shard the optimizer.' END AS fix
FROM oom AS o LEFT JOIN held AS h USING (rank, device) LEFT JOIN frame AS f ON f.rank = o.rank AND f.stack_id = o.stack_id LEFT JOIN top AS w ON w.rank = o.rank AND w.device = o.device
ORDER BY o.rank, o.device
