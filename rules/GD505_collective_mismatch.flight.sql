WITH paired AS (
  SELECT c.rank, c."group", c.seq, c.op, c.dtype, c.numel, c.shape, c.path, c.line,
    CASE WHEN regexp_matches(c.op, '^(all_?reduce|broadcast|reduce|_all_?gather_base|_reduce_scatter_base)$') THEN c.numel END AS must_match
  FROM collective AS c JOIN (SELECT DISTINCT rank, "group" FROM group_state) AS g USING (rank, "group")
  WHERE NOT coalesce(c.p2p, false) AND NOT regexp_matches(c.op, 'coalesced')
), differ AS (
  SELECT "group", min(seq) AS seq FROM (
    SELECT "group", seq FROM paired GROUP BY "group", seq
    HAVING count(DISTINCT rank) > 1 AND (count(DISTINCT op) > 1 OR count(DISTINCT dtype) > 1 OR count(DISTINCT must_match) > 1)
  ) GROUP BY "group"
), side AS (
  SELECT "group", seq, op || ' of ' || coalesce(nullif(shape, ''), numel::VARCHAR, '?') || ' ' || coalesce(dtype, '') AS what, min(rank) AS lowest, string_agg(rank::VARCHAR, ', ' ORDER BY rank) AS ranks
  FROM paired JOIN differ USING ("group", seq) GROUP BY ALL
), story AS (
  SELECT "group", seq, string_agg('rank ' || ranks || ' calls ' || what, ', but ' ORDER BY lowest) AS told FROM side GROUP BY "group", seq
)
SELECT p.rank, p.path, p.line, p.seq, p.op, p."group" AS process_group, p."group" AS group_key,
  'in collective ' || p.seq || ' of group ' || p."group" || ' ' || s.told AS message
FROM paired AS p JOIN story AS s USING ("group", seq)
ORDER BY p."group", p.rank
