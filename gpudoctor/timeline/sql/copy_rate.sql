-- copy_rate: use of the link by kind of copy and memory.
CREATE OR REPLACE VIEW copy_rate AS
SELECT rank, device, copy_kind, src_mem, dst_mem, count(*) AS count, sum(bytes)::BIGINT AS bytes, sum("end" - start)::BIGINT AS ns, count(step) AS in_steps,
    sum(bytes) * 1e9 / greatest(sum("end" - start), 1) AS rate, quantile_cont(bytes * 1e9 / ("end" - start), 0.9) FILTER (bytes >= 1048576) AS best
FROM op WHERE kind = 'memcpy' AND "end" > start GROUP BY rank, device, copy_kind, src_mem, dst_mem;
