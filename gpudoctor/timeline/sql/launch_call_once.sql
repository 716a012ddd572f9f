-- launch_call_once: launch_call with the first call of each correlation id only.
CREATE OR REPLACE VIEW launch_call AS
SELECT rank, corr, min(start) AS start, arg_min("end", start) AS "end", arg_min(tid, start) AS tid
FROM api WHERE corr IS NOT NULL AND "end" - start < 1000000000000000 GROUP BY rank, corr;
