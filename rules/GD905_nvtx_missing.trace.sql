SELECT o.rank, NULL AS abstain, CASE WHEN max(s.source) IS NULL THEN 'no steps were found on {ranks}' ELSE 'the steps of {ranks} were inferred from a pattern of kernels' END AS message, count(*) AS ops
FROM (SELECT rank FROM op WHERE kind IN ('kernel', 'comm')) o LEFT JOIN (SELECT rank, max(source) AS source FROM step GROUP BY rank) s USING (rank)
GROUP BY o.rank
HAVING max(s.source) IS NULL OR max(s.source) = 'inferred'
ORDER BY o.rank
