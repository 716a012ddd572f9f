WITH segment AS (
  SELECT rank, device, segment, sum(bytes) AS total, sum(bytes) FILTER (WHERE state = 'inactive') AS free,
    max(bytes) FILTER (WHERE state = 'inactive') AS largest, count(*) FILTER (WHERE state = 'inactive') AS pieces
  FROM mem_block GROUP BY rank, device, segment
), whole AS (
  SELECT rank, device, sum(total)::BIGINT AS reserved, coalesce(sum(free) FILTER (WHERE free < total), 0)::BIGINT AS free_in_pieces,
    max(largest) FILTER (WHERE free < total) AS largest_free, sum(pieces) FILTER (WHERE free < total)::BIGINT AS pieces
  FROM segment GROUP BY rank, device
)
SELECT rank, device, device AS device_name, reserved, free_in_pieces, largest_free, pieces, 'device ' || device AS group_key
FROM whole
WHERE free_in_pieces >= $min_bytes AND free_in_pieces >= $share * reserved AND largest_free <= $largest_share * free_in_pieces
ORDER BY rank, device
