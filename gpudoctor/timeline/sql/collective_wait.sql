-- collective_wait: the n-th collective of each rank beside the same one of the others. Who is last in waits least:
-- `transfer_ns` is the shortest time any rank spent in it, `wait_ns` what this rank spent beyond that.
-- Only where all ranks issued the same sequence; sends and receives, which pair up otherwise, are left out.
CREATE OR REPLACE TABLE collective_wait AS
WITH issued AS (
    SELECT o.rank, o.step, o.warmup, coalesce(k.op, 'collective') AS op, o.bytes, o.stream, coalesce(o.launch, o.start) AS issued, o.start, o."end", o.corr, 'gpu' AS side
    FROM op o JOIN kind_of_name k USING (name_id) WHERE o.kind = 'comm' AND coalesce(k.op, '') <> 'send_recv' AND o.graph IS NULL
    UNION ALL
    SELECT v.rank, s.step, coalesce(s.warmup, false), coalesce(k.op, 'collective'), NULL, v.tid, v.start, v.start, v."end", NULL, 'host'
    FROM nvtx v JOIN kind_of_name k USING (name_id)
    LEFT JOIN step_slot s ON s.rank = v.rank AND s.slot = v.start // (SELECT any_value(width) FROM step_slot) AND v.start >= s.start AND v.start < s."end"
    WHERE v."end" - v.start < 1000000000000000 AND regexp_matches(k.text, '^(gloo|mpi|ucc):') AND NOT regexp_matches(k.text, 'send|recv')
), stepped AS (
    SELECT *, row_number() OVER (PARTITION BY rank, side, step ORDER BY issued, start, "end", stream, corr) AS nth FROM issued WHERE step IS NOT NULL
), shape AS (
    SELECT rank, side, step, string_agg(op, ',' ORDER BY nth) AS sequence, count(*) AS n FROM stepped GROUP BY rank, side, step
), ranks AS (
    SELECT side, count(DISTINCT rank) AS n FROM stepped GROUP BY side
), alike AS (
    SELECT s.side, s.step FROM shape s JOIN ranks r USING (side) GROUP BY s.side, s.step, r.n
    HAVING count(*) = r.n AND count(DISTINCT s.sequence) = 1 AND r.n > 1
)
SELECT c.rank, c.side, c.step, c.warmup, c.nth, c.op, c.bytes, c.start, c."end", c."end" - c.start AS ns,
    min(c."end" - c.start) OVER p AS transfer_ns, (c."end" - c.start) - min(c."end" - c.start) OVER p AS wait_ns,
    row_number() OVER (PARTITION BY c.side, c.step, c.nth ORDER BY c."end" - c.start, c.rank) = 1 AS last_in
FROM stepped c JOIN alike a ON a.side = c.side AND a.step = c.step
WINDOW p AS (PARTITION BY c.side, c.step, c.nth);
