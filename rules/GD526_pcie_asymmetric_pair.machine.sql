SELECT a.device, a.device || '-' || a.peer AS pair, least(a.bandwidth, b.bandwidth) AS slow_rate, greatest(a.bandwidth, b.bandwidth) AS fast_rate, a.device || '-' || a.peer AS group_key
FROM link AS a JOIN link AS b ON a.device = b.peer AND a.peer = b.device
WHERE a.device < a.peer AND least(a.bandwidth, b.bandwidth) < $min_share * greatest(a.bandwidth, b.bandwidth)
ORDER BY a.device, a.peer
