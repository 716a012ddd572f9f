SELECT e.rank, e.name AS names, 'it has no effect unless the job spans hosts' AS why_text, 'possible' AS confidence, e.name AS group_key
FROM env_var AS e
WHERE e.path IS NULL AND e.name IN ('NCCL_SOCKET_NTHREADS', 'NCCL_NSOCKS_PERTHREAD', 'NCCL_SOCKET_IFNAME', 'NCCL_IB_HCA', 'NCCL_IB_TIMEOUT', 'NCCL_IB_RETRY_CNT', 'NCCL_IB_GID_INDEX', 'NCCL_IB_TC', 'NCCL_IB_SL', 'NCCL_NET_GDR_LEVEL', 'NCCL_CROSS_NIC', 'NCCL_BUFFSIZE_NET') AND e.name NOT LIKE '%IFNAME'
UNION ALL
SELECT e.rank, e.name || '=1', 'no pair of cards has P2P anyway', 'certain', e.name
FROM env_var AS e
WHERE e.path IS NULL AND e.name = 'NCCL_P2P_DISABLE' AND e.value = '1' AND (SELECT count(*) > 0 AND bool_and(p2p = 'unsupported') FROM link)
ORDER BY names
