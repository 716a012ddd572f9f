SELECT device, device AS card, h2d AS alone, h2d_together AS together, 'card ' || device AS group_key
FROM gpu WHERE h2d_together < $min_share * h2d
ORDER BY device
