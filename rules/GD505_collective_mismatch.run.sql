WITH sided AS (
  SELECT a.rank, b.rank AS other, a."group" AS pg, a.seq, a.op, b.op AS other_op, a.numel, b.numel AS other_numel, a.dtype, b.dtype AS other_dtype,
    a.path, a.line, b.path AS other_path, b.line AS other_line
  FROM last_collective AS a JOIN last_collective AS b ON a."group" = b."group" AND a.seq = b.seq AND a.rank < b.rank
  WHERE NOT regexp_matches(a.op || ' ' || b.op, 'send|recv|p2p|all_to_all')
    AND (a.op <> b.op OR (a.op IN ('all_reduce', 'ddp_all_reduce', 'broadcast', 'reduce', 'reduce_scatter_tensor', 'all_gather_into_tensor')
      AND (a.numel <> b.numel OR a.dtype <> b.dtype)))
    AND NOT EXISTS (SELECT 1 FROM fact WHERE kind = 'interrupted')
), first AS (
  SELECT * FROM sided ORDER BY seq, pg, rank, other LIMIT 1
), told AS (
  SELECT *, CASE WHEN op <> other_op THEN op ELSE op || ' of ' || numel || ' ' || coalesce(dtype, '') END AS one,
    CASE WHEN op <> other_op THEN other_op ELSE other_op || ' of ' || other_numel || ' ' || coalesce(other_dtype, '') END AS another
  FROM first
)
SELECT r AS rank, CASE WHEN r = t.rank THEN path ELSE other_path END AS path, CASE WHEN r = t.rank THEN line ELSE other_line END AS line, seq,
  'rank ' || t.rank || ' calls ' || one || coalesce(' at ' || parse_filename(path) || ':' || line, '') || ' while rank ' || other || ' calls ' || another
    || coalesce(' at ' || parse_filename(other_path) || ':' || other_line, '') || ', as collective ' || seq || ' of their group' AS log_text, 'mismatch' AS group_key
FROM told AS t, unnest([t.rank, t.other]) AS u(r)
WHERE r = t.rank
ORDER BY r
