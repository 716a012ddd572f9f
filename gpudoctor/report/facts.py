"""The summary of a report: what was measured, whether or not it is a fault."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gpudoctor.timeline.intervals import covered
from gpudoctor.timeline.store import Store

Row = dict[str, Any]


def summarise(store: Store) -> dict[str, Any]:
    """Ranks, steps, memory, gradients and recorder cost of the subject; a part the tables cannot fill is left out."""
    parts = {
        "ranks": _ranks(store), "steps": _steps(store), "memory": _memory(store),
        "gradients": _gradients(store), "overhead": _overhead(store), "devices": _devices(store),
    }
    return {name: part for name, part in parts.items() if part}


def _ranks(store: Store) -> list[Row]:
    return store.query("""
        SELECT rank, any_value(world_size) AS world_size, any_value(backend) AS backend, any_value(state) AS state,
               any_value(exit_code) AS exit_code, any_value(signal) AS signal, any_value(last_line) AS last_line,
               any_value(host) AS host, any_value(source) AS source
        FROM rank_info WHERE rank IS NOT NULL GROUP BY rank ORDER BY rank""")


def _steps(store: Store) -> list[Row]:
    """Per rank: steady steps, their median and spread, and where the time goes [ns]."""
    return store.query("""
        SELECT rank, count(*) AS steps, count(*) FILTER (WHERE coalesce(warmup, false)) AS warmup_steps,
               any_value(source) AS source,
               median("end" - start) FILTER (WHERE NOT coalesce(warmup, false)) AS median_ns,
               quantile_cont("end" - start, 0.1) FILTER (WHERE NOT coalesce(warmup, false)) AS p10_ns,
               quantile_cont("end" - start, 0.9) FILTER (WHERE NOT coalesce(warmup, false)) AS p90_ns,
               median(data_ns) FILTER (WHERE NOT coalesce(warmup, false)) AS data_ns,
               median(forward_ns) FILTER (WHERE NOT coalesce(warmup, false)) AS forward_ns,
               median(backward_ns) FILTER (WHERE NOT coalesce(warmup, false)) AS backward_ns,
               median(optimizer_ns) FILTER (WHERE NOT coalesce(warmup, false)) AS optimizer_ns
        FROM step WHERE rank IS NOT NULL GROUP BY rank ORDER BY rank""")


def _memory(store: Store) -> list[Row]:
    """Per rank and device the highest values [B]; device -1 is the rank's host memory."""
    return store.query("""
        SELECT rank, device, max(greatest(coalesce(peak_allocated, 0), coalesce(allocated, 0))) AS peak_allocated,
               max(greatest(coalesce(peak_reserved, 0), coalesce(reserved, 0))) AS peak_reserved, max(total) AS total,
               max(used_by_others) AS used_by_others
        FROM mem_sample WHERE rank IS NOT NULL GROUP BY rank, device ORDER BY rank, device""")


def _devices(store: Store) -> list[Row]:
    """Per rank and GPU of a capture: its span, kernels and collectives, and the busy share: of steady steps where there are any, else of all."""
    if not store.count("gpu_op"):
        return []
    rows = store.query("""
        SELECT w.*, s.busy, s.busy IS NOT NULL AS in_steps
        FROM (SELECT rank, device, count(*) AS operations, count(*) FILTER (WHERE kind = 'kernel') AS kernels,
                     count(*) FILTER (WHERE kind = 'comm') AS comm_kernels, max("end") - min(start) AS span_ns
              FROM gpu_op WHERE "end" >= start GROUP BY rank, device) w
        LEFT JOIN (SELECT rank, device, sum(busy) / sum(span) AS busy FROM step_time WHERE NOT warmup GROUP BY rank, device HAVING sum(span) > 0) s
        ON s.rank = w.rank AND s.device = w.device ORDER BY w.rank, w.device""")
    for row in rows:
        if row["busy"] is None:
            row["busy"] = _busy_ns(store, row["rank"], row["device"]) / row["span_ns"] if row["span_ns"] else 0.0
    return rows


def _busy_ns(store: Store, rank: int, device: int | None) -> int:
    where = f"rank = {rank} AND device IS NOT DISTINCT FROM {'NULL' if device is None else device}"
    spans = store.compute(f'SELECT start, "end" FROM gpu_op WHERE {where} AND "end" >= start')
    return covered(spans["start"].to_numpy(), spans["end"].to_numpy())


def _gradients(store: Store) -> list[Row]:
    """Per parameter: numel, norms per rank, and how well the ranks agree.

    Agreement is the mean pairwise inner product of the ranks' local gradients over their mean squared norm, from
    norms alone: (‖Σgᵢ‖² − Σ‖gᵢ‖²) / ((N − 1) Σ‖gᵢ‖²), with Σgᵢ = N · mean; for two ranks of equal norm it is the cosine.
    The mean's norms were taken before the optimizer, after unscaling and clipping: the factor between is that of all a model's
    parameters against the buckets as they came out of the all-reduce. Where a step reduced more than its last backward
    pass, or the result is none that gradients can have, agreement is left out.
    """
    rows = store.query("""
        WITH names AS (SELECT param_id, any_value(name) AS name, any_value(numel) AS numel, coalesce(any_value(model_id), 0) AS model_id FROM param GROUP BY param_id),
        local AS (SELECT step, param_id, count(DISTINCT rank) AS n, sum(norm * norm) AS total FROM grad_stat
                  WHERE stage = 'local' AND isfinite(norm) GROUP BY step, param_id HAVING count(*) = count(DISTINCT rank)),
        reduced AS (SELECT step, param_id, avg(norm) AS norm FROM grad_stat WHERE stage = 'reduced' AND isfinite(norm) GROUP BY step, param_id),
        passes AS (SELECT step, max(micro_batches) AS n FROM step GROUP BY step),
        buckets AS (SELECT step, coalesce(model_id, 0) AS model_id, sum(reduced_norm2) AS total FROM bucket JOIN passes USING (step)
                    WHERE path <> 'manual' AND rank = (SELECT min(rank) FROM bucket)
                    GROUP BY step, coalesce(model_id, 0), n HAVING min(micro_batch) = max(micro_batch) AND max(micro_batch) + 1 = n),
        factor AS (SELECT step, model_id, sum(r.norm * r.norm) / any_value(b.total) AS squared
                   FROM reduced r JOIN local USING (step, param_id) JOIN names USING (param_id) JOIN buckets b USING (step, model_id)
                   WHERE b.total > 0 GROUP BY step, model_id),
        judged AS (SELECT r.step, r.param_id, r.norm, l.n, CASE WHEN l.n > 1 AND l.total > 0 AND f.squared > 0
                          THEN (l.n * l.n * r.norm * r.norm / f.squared - l.total) / ((l.n - 1) * l.total) END AS agreement
                   FROM reduced r LEFT JOIN local l USING (step, param_id) LEFT JOIN names USING (param_id) LEFT JOIN factor f USING (step, model_id))
        SELECT step, param_id, names.name, names.numel, j.n, norm, CASE WHEN agreement BETWEEN -1.05 / (j.n - 1) AND 1.05 THEN least(agreement, 1) END AS agreement
        FROM judged j LEFT JOIN names USING (param_id) ORDER BY param_id, step""")
    by_param: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        by_param[row["param_id"]].append(row)
    return [_param(items) for items in by_param.values()]


def _param(items: list[Row]) -> Row:
    agreements = sorted(i["agreement"] for i in items if i["agreement"] is not None)
    return {
        "param": items[0]["name"] or f"parameter {items[0]['param_id']}", "numel": items[0]["numel"], "steps": len(items), "ranks": max(i["n"] or 1 for i in items),
        "agreement": agreements[len(agreements) // 2] if agreements else None,
        "norm_first": items[0]["norm"], "norm_last": items[-1]["norm"], "norms": _thin([i["norm"] for i in items], 40),
    }


def _thin(values: list[float], most: int) -> list[float]:
    if len(values) <= most:
        return values
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def _overhead(store: Store) -> list[Row]:
    return store.query("""
        SELECT rank, sum(probe_ns) AS probe_ns, sum(step_ns) AS step_ns, max("interval") AS sampling_interval
        FROM overhead WHERE rank IS NOT NULL GROUP BY rank ORDER BY rank""")
