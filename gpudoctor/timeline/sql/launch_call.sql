-- launch_call: the call behind each correlation id.
CREATE OR REPLACE TABLE launch_call AS
SELECT rank, corr, min(start) AS start, arg_min("end", start) AS "end", arg_min(tid, start) AS tid
FROM api WHERE corr IS NOT NULL GROUP BY rank, corr;
