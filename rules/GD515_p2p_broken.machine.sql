SELECT device, peer, wrong_bytes, 'a copy from card ' || device || ' to card ' || peer || CASE WHEN wrong_bytes > 0 THEN ' arrives with ' || wrong_bytes || ' wrong bytes' ELSE ' fails' END AS story
FROM link WHERE p2p = 'broken'
ORDER BY device, peer
