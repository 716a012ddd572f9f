SELECT device, device AS card, 'card ' || device AS group_key FROM gpu WHERE mig ORDER BY device
