WITH entry AS (
  SELECT value, trim(unnest(string_split(value, ','))) AS card FROM (SELECT DISTINCT value FROM env_var WHERE name = 'CUDA_VISIBLE_DEVICES' AND path IS NULL AND value <> '')
), cards AS (
  SELECT count(*) AS n FROM gpu
)
SELECT value, value AS group_key, CASE WHEN count(*) > count(DISTINCT card) THEN 'a card is named twice' ELSE 'card ' || min(card) FILTER (WHERE try_cast(card AS BIGINT) >= n) || ' is not there, the host has ' || any_value(n) END AS story
FROM entry, cards
GROUP BY value
HAVING count(*) > count(DISTINCT card) OR (any_value(n) > 0 AND count(*) FILTER (WHERE try_cast(card AS BIGINT) >= n) > 0)
ORDER BY value
