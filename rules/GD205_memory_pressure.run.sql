WITH held AS (
  SELECT rank, device, max(peak_allocated) AS peak, max(total) AS total, max(coalesce(retries, 0)) AS retries FROM mem_sample WHERE device >= 0 GROUP BY rank, device
)
SELECT rank, device, device AS device_name, peak, total, retries, peak / total AS share, 'device ' || device AS group_key,
  CASE WHEN retries > 0 THEN 'warning' ELSE 'note' END AS severity,
  CASE WHEN retries > 0 THEN 'device ' || device || ' ran full {retries:n} times: the allocator emptied its cache and asked again; live tensors reached {peak:B} of {total:B}'
    ELSE 'live tensors filled {share:%} of device ' || device || ' ({peak:B} of {total:B})' END AS message
FROM held WHERE retries > 0 OR peak >= $share * total
ORDER BY rank, device
