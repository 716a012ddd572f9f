SELECT rank, path, line, 'log' AS group_key,
  regexp_extract(text, 'Tried to allocate ([\d.]+ ?[KMGT]i?B)', 1) AS asked_text, regexp_extract(text, 'of which ([\d.]+ ?[KMGT]i?B) is free', 1) AS free_text,
  regexp_extract(text, '([\d.]+ ?[KMGT]i?B) is allocated by PyTorch', 1) AS live_text, regexp_extract(text, '([\d.]+ ?[KMGT]i?B) is reserved by PyTorch but unallocated', 1) AS idle_text,
  'memory ran out' || coalesce(' on rank ' || rank, '') || ': ' || asked_text || ' were asked for' || CASE WHEN free_text <> '' THEN ', ' || free_text || ' were free on the card' ELSE '' END
    || CASE WHEN live_text <> '' THEN '; PyTorch''s tensors held ' || live_text || ', and ' || idle_text || ' more lay free inside its allocator' ELSE '' END AS message,
  'Run it under `gpudoctor run`, which keeps the allocator''s own snapshot of that moment; or lower the batch.' AS fix
FROM log_line
WHERE regexp_matches(text, 'out of memory\. Tried to allocate') AND NOT EXISTS (SELECT 1 FROM mem_event WHERE action = 'oom')
ORDER BY path, line
