WITH held AS (SELECT rank, device, sum(bytes)::BIGINT AS bytes FROM mem_block GROUP BY rank, device
), home AS (SELECT * FROM held QUALIFY row_number() OVER (PARTITION BY rank ORDER BY bytes DESC, device) = 1
), loads AS (
  SELECT DISTINCT b.rank, b.device FROM mem_block AS b JOIN mem_stack AS s ON s.rank = b.rank AND s.stack_id = b.stack_id WHERE regexp_matches(s.file, '[/\\]serialization\.py$')
)
SELECT x.rank, x.device, h.device AS own_device, x.bytes, 'card ' || x.device AS group_key,
  'rank ' || x.rank || ' holds {bytes:B} on card ' || x.device || ' of rank ' || o.rank || ', though it works on card ' || h.device AS message
FROM held AS x JOIN home AS h ON h.rank = x.rank AND h.device <> x.device JOIN home AS o ON o.device = x.device AND o.rank <> x.rank
WHERE x.bytes <= 0.1 * h.bytes AND NOT EXISTS (SELECT 1 FROM loads AS l WHERE l.rank = x.rank AND l.device = x.device)
ORDER BY x.rank, x.device, o.rank
