SELECT device, 'cards ' || device || '-' || peer AS pairs, ': the driver offers no P2P' || coalesce(' (' || reason || ')', '') AS why_text, kind AS topology
FROM link
WHERE device < peer AND kind <> 'NVLINK' AND p2p = 'unsupported'
ORDER BY device, peer
