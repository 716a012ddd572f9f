-- launch_call: the call behind each correlation id. Correlation ids are unique in what recorders write; where a file has them twice,
-- `launch_call_once` takes this view's place.
CREATE OR REPLACE VIEW launch_call AS SELECT rank, corr, start, "end", tid FROM api WHERE corr IS NOT NULL AND "end" - start < 1000000000000000;
