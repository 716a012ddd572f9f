SELECT g.device, f.text AS version, g.name || ' (compute capability ' || g.arch || ') needs ' || CASE WHEN g.arch LIKE '12.%' THEN '2.26' ELSE '2.24' END AS story
FROM gpu AS g, (SELECT text, value FROM machine_fact WHERE name = 'nccl') AS f
WHERE (g.arch LIKE '12.%' AND f.value < 22600) OR (g.arch LIKE '10.%' AND f.value < 22400)
ORDER BY g.device
