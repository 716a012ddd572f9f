WITH held AS (
  SELECT rank, device, sum(bytes)::BIGINT AS held FROM mem_block GROUP BY rank, device
), home AS (
  SELECT * FROM held QUALIFY row_number() OVER (PARTITION BY rank ORDER BY held DESC, device) = 1
), card AS (
  SELECT h.rank, h.device, (SELECT sum(held) FROM held WHERE held.device = h.device)::BIGINT AS used, h.held FROM home AS h
), pair AS (
  SELECT f.rank AS full_rank, f.device AS full_device, f.used AS full_bytes, l.rank AS low_rank, l.device AS low_device, l.used AS low_bytes, f.used - f.held AS foreign_bytes
  FROM card AS f, card AS l
  WHERE f.device <> l.device AND f.used - l.used >= $min_bytes AND f.used - l.used >= $share * f.used
  QUALIFY row_number() OVER (ORDER BY f.used - l.used DESC, f.rank, l.rank) = 1
)
SELECT full_rank AS rank, full_device AS device, *, 'cards' AS group_key,
  CASE WHEN foreign_bytes >= 0.5 * (full_bytes - low_bytes) THEN 'other ranks hold {foreign_bytes:B} there' ELSE 'its own allocations are larger' END AS cause,
  'device {full_device} of rank {full_rank} holds {full_bytes:B}, device {low_device} of rank {low_rank} {low_bytes:B}: ' || cause AS message,
  'Compare the two snapshots: `gpudoctor compare A B` lists the stacks that hold more.' AS fix
FROM pair
