WITH slowed AS (
  SELECT host, device, h2d, h2d_together FROM gpu WHERE h2d_together < $min_share * h2d
)
SELECT device, (SELECT string_agg(device, ', ' ORDER BY device) FROM slowed) AS cards, h2d AS alone, h2d_together AS together, 'uplink' AS group_key
FROM slowed
ORDER BY device
