WITH dead AS (
  SELECT * FROM rank_info
  WHERE state IN ('failed', 'killed') AND NOT coalesce(victim, false) AND NOT EXISTS (SELECT 1 FROM fact WHERE kind = 'interrupted')
), first AS (
  SELECT rank AS first, coalesce(signal, 0) AS by, coalesce(last_line, '') AS words FROM dead ORDER BY t_end NULLS LAST, rank LIMIT 1
), named AS (
  SELECT d.*, f.first,
    CASE d.signal WHEN 4 THEN 'SIGILL' WHEN 6 THEN 'SIGABRT' WHEN 7 THEN 'SIGBUS' WHEN 8 THEN 'SIGFPE' WHEN 9 THEN 'SIGKILL' WHEN 11 THEN 'SIGSEGV' WHEN 15 THEN 'SIGTERM' ELSE 'signal ' || d.signal END AS name
  FROM dead AS d, first AS f
  WHERE coalesce(d.signal, 0) = f.by AND (coalesce(d.last_line, '') = f.words OR f.words = '')
)
SELECT rank, path, line, first, CASE WHEN signal > 0 THEN name END AS name, exit_code, last_line AS last_words, last_step + 1 AS step,
  coalesce(first, -1) || ':' || coalesce(last_line, signal || '', '') AS group_key,
  CASE WHEN rank IS NULL THEN 'the launcher ' ELSE '' END
    || CASE WHEN signal > 0 THEN 'was killed by ' || name WHEN exit_code > 0 THEN 'ended with exit code ' || exit_code ELSE 'ended without a word' END
    || CASE WHEN rank IS NULL THEN ' before any rank was seen' WHEN last_step >= 0 THEN ' in step ' || (last_step + 1) ELSE ' before its first step' END
    || CASE WHEN coalesce(last_line, '') <> '' THEN ': ' || split_part(last_line, chr(10), 1) ELSE '' END AS story,
  CASE
    WHEN signal = 9 THEN 'SIGKILL mostly comes from the kernel or the container when memory runs out: look at `dmesg`, and at the memory of the hosts.'
    WHEN signal = 6 THEN 'SIGABRT comes from a failed check in native code or from NCCL''s watchdog: its words stand in the log before the end.'
    WHEN signal IN (7, 11) THEN 'A native library crashed; a full /dev/shm raises SIGBUS in DataLoader workers and NCCL.'
    WHEN rank IS NULL THEN 'Here that is logs/launcher.txt.'
    ELSE 'The others ended because of it.'
  END AS advice
FROM named
ORDER BY rank
