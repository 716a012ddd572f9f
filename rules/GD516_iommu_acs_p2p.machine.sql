WITH fact AS (
  SELECT max(value) FILTER (WHERE name = 'acs_redirect') AS bridges, max(text) FILTER (WHERE name = 'iommu') AS iommu FROM machine_fact
)
SELECT l.device, l.peer, 'cards ' || l.device || ' and ' || l.peer || ' use P2P over PCIe, and ' ||
  concat_ws(' and ', CASE WHEN bridges > 0 THEN 'ACS redirects on ' || bridges::BIGINT || ' bridges' END, CASE WHEN iommu = 'translating' THEN 'the IOMMU translates' END) AS story
FROM link AS l, fact
WHERE l.device < l.peer AND l.kind <> 'NVLINK' AND l.p2p IN ('ok', 'untested', 'broken') AND coalesce(l.reason, '') <> 'unknown' AND (bridges > 0 OR iommu = 'translating')
ORDER BY l.device, l.peer
