WITH latest AS (
  SELECT * FROM mem_sample WHERE device >= 0 AND in_pieces IS NOT NULL
  QUALIFY row_number() OVER (PARTITION BY rank, device ORDER BY step DESC, t DESC, phase) = 1
)
SELECT rank, device, device AS device_name, reserved, in_pieces AS free_in_pieces, largest_free, 'device ' || device AS group_key,
  '{free_in_pieces:B} of {reserved:B} reserved on device ' || device || ' is free only in pieces, the largest {largest_free:B}: a larger request needs new memory' AS message
FROM latest
WHERE in_pieces >= $min_bytes AND in_pieces >= $share * reserved AND largest_free <= $largest_share * in_pieces
ORDER BY rank, device
