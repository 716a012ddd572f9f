SELECT rank, count(*) FILTER (WHERE skipped) AS skipped, count(*) AS steps, arg_max(scale, step) AS scale, $settle AS settle, 'skipped' AS group_key
FROM amp WHERE step >= $settle
GROUP BY rank
HAVING count(*) >= 20 AND count(*) FILTER (WHERE skipped) >= 3 AND count(*) FILTER (WHERE skipped) > $share * count(*)
ORDER BY rank
