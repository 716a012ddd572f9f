WITH built AS (
  SELECT text, string_split(text, ' ') AS archs FROM machine_fact WHERE name = 'torch_archs' AND text <> ''
)
SELECT g.device, g.name || ' has compute capability ' || g.arch || ', this PyTorch was built for ' || b.text AS story
FROM gpu AS g, built AS b
WHERE g.arch IS NOT NULL AND len(list_filter(b.archs, lambda a: split_part(g.arch, '.', 1) = regexp_extract(a, '(?:sm|compute)_(\d+)\d[af]?$', 1) AND (
    try_cast(regexp_extract(a, '_\d+(\d)[af]?$', 1) AS BIGINT) <= try_cast(split_part(g.arch, '.', 2) AS BIGINT)))) = 0
  AND len(list_filter(b.archs, lambda a: starts_with(a, 'compute_') AND try_cast(regexp_extract(a, '_(\d+)', 1) AS BIGINT) <= 10 * try_cast(g.arch AS DOUBLE))) = 0
ORDER BY g.device
