-- memory_use: memory in use over time, by who reports it: the total that the source gives, else the sum of all changes so far.
CREATE OR REPLACE VIEW memory_use AS
SELECT rank, device, source, kind, t, bytes AS change,
    coalesce(total, sum(bytes) OVER (PARTITION BY rank, device, source, kind ORDER BY t, address, bytes, corr ROWS UNBOUNDED PRECEDING))::BIGINT AS in_use
FROM gpu_mem WHERE t IS NOT NULL;
