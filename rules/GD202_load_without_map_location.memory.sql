WITH held AS (SELECT rank, device, sum(bytes) AS bytes FROM mem_block GROUP BY rank, device
), home AS (SELECT * FROM held QUALIFY row_number() OVER (PARTITION BY rank ORDER BY bytes DESC, device) = 1
), loads AS (
  SELECT DISTINCT rank, stack_id FROM mem_stack WHERE func IN ('load', '_load', 'restore_location', '_cuda_deserialize', '_deserialize') AND regexp_matches(file, '[/\\]serialization\.py$')
), place AS (
  SELECT rank, stack_id, first(file ORDER BY depth) AS file, first(line ORDER BY depth) AS line FROM mem_stack
  WHERE NOT regexp_matches(file, '[/\\](site|dist)-packages[/\\]|[/\\]torch[/\\]|^<') GROUP BY rank, stack_id
)
SELECT b.rank, b.device, first(p.file ORDER BY p.file, p.line) AS path, first(p.line ORDER BY p.file, p.line) AS line, sum(b.bytes)::BIGINT AS bytes, 'device ' || b.device AS group_key,
  'loaded checkpoints hold {bytes:B} on device ' || b.device || ', though rank ' || b.rank || ' works on device ' || any_value(h.device) AS message,
  'Pass `map_location="cpu"`, or the rank''s own device, to `torch.load`.' AS fix
FROM mem_block AS b JOIN home AS h ON h.rank = b.rank AND h.device <> b.device JOIN loads AS l ON l.rank = b.rank AND l.stack_id = b.stack_id
LEFT JOIN place AS p ON p.rank = b.rank AND p.stack_id = b.stack_id
WHERE b.device = 0 AND b.state <> 'inactive'
GROUP BY b.rank, b.device HAVING sum(b.bytes) >= 1048576
ORDER BY b.rank, b.device
