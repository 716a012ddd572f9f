SELECT any_value(rank) AS rank, max(world_size) AS world, 1 AS count
FROM capture WHERE kind IN ('nsys', 'kineto')
HAVING sum(ranks) = 1 AND max(world_size) > 1
