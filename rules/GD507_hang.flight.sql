WITH known AS (
  SELECT rank, "group", enqueued, completed, size FROM group_state WHERE enqueued IS NOT NULL AND coalesce(size, 2) > 1
), top AS (
  SELECT "group", max(enqueued) AS enqueued FROM known GROUP BY "group" HAVING count(*) > 1
), behind AS (
  SELECT k.rank, k."group", k.enqueued + 1 AS missing FROM known AS k JOIN top AS t USING ("group") WHERE k.enqueued < t.enqueued
), victim AS (
  SELECT DISTINCT k.rank FROM known AS k JOIN behind AS b ON b."group" = k."group" AND b.rank <> k.rank AND b.missing = k.completed + 1 AND k.enqueued > k.completed
), waiting AS (
  SELECT b.rank, b."group", b.missing, min(c.start) AS since, min(c.op) AS op, min(c.shape) AS shape,
    string_agg(DISTINCT c.rank::VARCHAR, ', ' ORDER BY c.rank::VARCHAR) AS waiters, min(c.path) AS path, min(c.line) AS line
  FROM behind AS b JOIN collective AS c ON c."group" = b."group" AND c.seq = b.missing AND c.rank <> b.rank AND NOT coalesce(c.p2p, false) AND c.state <> 'completed'
  WHERE b.rank NOT IN (SELECT rank FROM victim)
  GROUP BY b.rank, b."group", b.missing
), first AS (
  SELECT *, row_number() OVER (PARTITION BY rank ORDER BY since NULLS LAST, "group") AS n, count(*) OVER (PARTITION BY rank) AS groups FROM waiting
)
SELECT rank, path, line, op, missing AS seq, "group" AS process_group, waiters, shape, groups, 'rank ' || rank AS group_key,
  'rank ' || rank || ' is behind: it never came to collective ' || missing || ' (' || op || ') of group ' || "group" || ', in which ' ||
  CASE WHEN waiters LIKE '%,%' THEN 'ranks ' ELSE 'rank ' END || waiters || CASE WHEN waiters LIKE '%,%' THEN ' wait' ELSE ' waits' END ||
  CASE WHEN groups > 1 THEN '; it is behind in ' || groups || ' groups' ELSE '' END AS story
FROM first WHERE n = 1
ORDER BY rank
