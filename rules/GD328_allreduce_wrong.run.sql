-- An all-reduce is linear: sum and ±1 sketch of what came out must be those of the mean (or sum) of what went in.
-- The bound is the variance of rounding (V-ABFT): sigma standard deviations of the errors of the reduction's dtype and of our own fp32 sums.
-- A user's hook may change the arithmetic: there the ranks' results are compared, and the sketch only where the hook usually keeps it.
WITH one AS (
  SELECT *, CASE dtype WHEN 'float64' THEN 2.0 ** -53 WHEN 'float32' THEN 2.0 ** -24 WHEN 'float16' THEN 2.0 ** -11 WHEN 'bfloat16' THEN 2.0 ** -8 END AS unit
  FROM bucket
  WHERE world > 1 AND isfinite(local_norm2) AND isfinite(reduced_norm2) AND isfinite(local_sketch) AND isfinite(reduced_sketch)
), whole AS (
  SELECT model_id, path, step, micro_batch, bucket, any_value(world) AS world, any_value(op) AS op, any_value(unit) AS unit, any_value(numel) AS numel, any_value(dtype) AS dtype,
    sum(local_sketch) / CASE WHEN any_value(op) = 'mean' THEN any_value(world) ELSE 1 END AS sketch,
    sum(sqrt(local_norm2)) / CASE WHEN any_value(op) = 'mean' THEN any_value(world) ELSE 1 END AS size,
    median(reduced_sketch) AS usual_sketch, median(reduced_norm2) AS usual_norm2, max(reduced_norm2) AS most_norm2
  FROM one GROUP BY model_id, path, step, micro_batch, bucket
  HAVING count(DISTINCT rank) = any_value(world) AND count(*) = any_value(world) AND count(DISTINCT numel) = 1 AND count(DISTINCT dtype) = 1
), judged AS (
  SELECT o.rank, w.*, o.local_sketch, abs(o.reduced_sketch - w.sketch) AS error,
    $sigma * (0.41 * w.unit * sqrt(w.world) + 8 * 2.0 ** -24) * w.size + CASE WHEN w.dtype = 'float16' THEN $sigma * 3e-8 * sqrt(w.numel) ELSE 0 END AS bound,
    abs(o.reduced_sketch - w.usual_sketch) > 1e-4 * sqrt(w.most_norm2) OR abs(sqrt(o.reduced_norm2) - sqrt(w.usual_norm2)) > 1e-4 * sqrt(w.most_norm2) AS alone
  FROM one AS o JOIN whole AS w USING (model_id, path, step, micro_batch, bucket)
), habit AS (
  SELECT model_id, path, median(error / nullif(size, 0)) AS usual, avg(CAST(alone AS INTEGER)) AS alone FROM judged GROUP BY model_id, path
), wrong AS (
  SELECT j.*, j.alone OR max(CAST(j.alone AS INTEGER)) OVER (PARTITION BY j.model_id, j.path, j.step, j.micro_batch, j.bucket) = 0 AS first_hand
  FROM judged AS j JOIN habit AS h USING (model_id, path)
  WHERE CASE WHEN j.path <> 'hook' THEN j.error > j.bound ELSE (j.alone AND h.alone < 0.2) OR (h.usual < 0.01 AND j.error > greatest(j.bound, 0.1 * j.size)) END
), blamed AS (
  -- With two ranks a lone result cannot be outvoted: the rank whose own error is beyond the bound is to blame.
  SELECT *, CASE WHEN alone THEN 'received' ELSE 'sent' END AS side FROM wrong WHERE first_hand AND (error > bound OR world > 2)
), contribution AS (
  -- All ranks got the same wrong result: if one rank's own share explains the error, that share was lost.
  SELECT b.rank AS reader, b.model_id, b.path, b.step, b.micro_batch, b.bucket, arg_min(o.rank, abs(abs(o.local_sketch) / CASE WHEN b.op = 'mean' THEN b.world ELSE 1 END - b.error)) AS loser,
    min(abs(abs(o.local_sketch) / CASE WHEN b.op = 'mean' THEN b.world ELSE 1 END - b.error)) < greatest(4 * any_value(b.bound), 1e-3 * any_value(b.error)) AS explained
  FROM blamed AS b JOIN one AS o USING (model_id, path, step, micro_batch, bucket) WHERE b.side = 'sent'
  GROUP BY b.rank, b.model_id, b.path, b.step, b.micro_batch, b.bucket, b.op, b.world
), named AS (
  SELECT DISTINCT CASE WHEN b.side = 'received' THEN b.rank WHEN c.explained THEN c.loser ELSE b.rank END AS rank, b.side, b.model_id, b.path, b.step, b.bucket, b.error / nullif(b.size, 0) AS share,
    coalesce(c.explained, false) AS explained
  FROM blamed AS b LEFT JOIN contribution AS c ON c.reader = b.rank AND c.model_id = b.model_id AND c.path = b.path AND c.step = b.step AND c.micro_batch = b.micro_batch AND c.bucket = b.bucket
), ends AS (
  SELECT rank, model_id, count(DISTINCT (step, bucket)) AS times, min(step) AS step, arg_min(bucket, (step, bucket)) AS bucket, arg_min(side, (step, bucket)) AS side,
    max(share) AS share, bool_or(explained) AS explained FROM named GROUP BY rank, model_id
), layers AS (
  SELECT model_id, bucket, any_value(name ORDER BY param_id) AS parameter, count(DISTINCT param_id) AS parameters FROM param WHERE bucket >= 0 GROUP BY model_id, bucket
)
SELECT e.rank, e.step, e.bucket, e.times AS count, e.share, l.parameter, 'rank' || e.rank AS group_key,
  CASE WHEN e.side = 'received' THEN 'rank ' || e.rank || ' received a wrong result' WHEN e.explained THEN 'what rank ' || e.rank || ' sent was lost' ELSE 'the result that rank ' || e.rank || ' got is not the mean of what went in' END
    || ' in the all-reduce of bucket ' || e.bucket || coalesce(' (' || l.parameter || ' and ' || (l.parameters - 1) || ' more)', '') || ' at step ' || e.step
    || CASE WHEN e.times > 1 THEN ', and in ' || (e.times - 1) || ' more' ELSE '' END AS message
FROM ends AS e LEFT JOIN layers AS l ON l.model_id = e.model_id AND l.bucket = e.bucket
ORDER BY e.rank, e.model_id
