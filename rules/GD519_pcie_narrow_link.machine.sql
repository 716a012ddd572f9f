WITH seen AS (
  SELECT device, name, coalesce(pcie_gen_load, pcie_gen) AS gen, coalesce(pcie_width_load, pcie_width) AS width, pcie_gen_load IS NOT NULL AS loaded,
    coalesce(pcie_gen_max, pcie_gen_card) AS best_gen, coalesce(pcie_width_card, pcie_width_max) AS best_width, pcie_width_max AS slot_width, h2d,
    CASE coalesce(pcie_gen_load, pcie_gen) WHEN 1 THEN 0.25e9 WHEN 2 THEN 0.5e9 WHEN 3 THEN 0.985e9 WHEN 4 THEN 1.969e9 WHEN 5 THEN 3.938e9 WHEN 6 THEN 7.563e9 END AS lane
  FROM gpu
), judged AS (
  SELECT *, width < best_width AS narrow, gen < best_gen AS slow, loaded AND h2d < $min_share * lane * width AS weak FROM seen
)
SELECT device, device AS card, name AS card_name, gen || '.0 x' || width AS now, best_gen || '.0 x' || best_width AS best, h2d, lane * width AS limit_rate, 'card ' || device AS group_key,
  CASE
    WHEN narrow AND slot_width < best_width THEN 'the slot gives x' || slot_width
    WHEN narrow THEN 'fewer lanes than the card has'
    WHEN slow THEN 'a lower generation, even while copying'
    ELSE 'a pinned copy reaches ' || round(h2d / 1e9, 1) || ' GB/s of ' || round(lane * width / 1e9, 1)
  END AS story,
  CASE WHEN loaded THEN 'certain' ELSE 'likely' END AS confidence,
  NULL AS abstain
FROM judged WHERE narrow OR (slow AND loaded) OR weak
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'card ' || string_agg(device, ', ' ORDER BY device) || ' was idle, and an idle link lowers its generation; the width is as it should be'
FROM judged WHERE slow AND NOT loaded AND NOT narrow HAVING count(*) > 0
ORDER BY device
