SELECT l.device, l.peer, 'cards ' || l.device || ' and ' || l.peer || ': ' || e.name || '=' || e.value AS story, e.name AS group_key
FROM link AS l, env_var AS e
WHERE l.device < l.peer AND l.kind = 'NVLINK' AND e.path IS NULL AND ((e.name = 'NCCL_P2P_DISABLE' AND e.value = '1') OR (e.name = 'NCCL_P2P_LEVEL' AND upper(e.value) IN ('LOC', '0')))
ORDER BY l.device, l.peer, e.name
