"""Rows for the charts of the HTML page, thinned so that the page stays small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gpudoctor.model import Finding
from gpudoctor.timeline.store import Store

Rows = list[dict[str, Any]]
MAX_OPS = 4000
MAX_PARAMS = 12
MAX_STEPS = 24


def chart_rows(store: Store, findings: Iterable[Finding] = ()) -> dict[str, Rows]:
    """Rows by chart: timeline with findings marked, memory, ridges, phases; a chart without data is left out."""
    work = _timeline(store)
    charts = {"timeline": work + list(_marks(store, findings)) if work else [], "memory": _memory(store), "ridges": _ridges(store), "phases": _phases(store)}
    return {name: rows for name, rows in charts.items() if rows}


_WINDOW = """
    SELECT rank, min(start) AS origin, NULL::BIGINT AS until FROM gpu_op WHERE rank NOT IN (SELECT rank FROM traced_step WHERE NOT warmup) GROUP BY rank
    UNION ALL
    SELECT rank, start, "end" FROM (
        SELECT rank, start, "end", abs("end" - start - median("end" - start) OVER (PARTITION BY rank)) AS off FROM traced_step WHERE NOT warmup)
    QUALIFY row_number() OVER (PARTITION BY rank ORDER BY off, start, "end") = 1"""


def _timeline(store: Store) -> Rows:
    """Operations of one steady step of median length per rank; without steps, of the capture's first part. Times in µs from its start."""
    return store.query(f"""
        WITH shown AS ({_WINDOW}), ranks AS (SELECT greatest(1, count(*)) AS n FROM shown)
        SELECT o.rank, o.device, o.stream, o.kind, coalesce(n.text, o.copy_kind, o.kind) AS name, o.bytes,
               (o.start - w.origin) / 1000.0 AS start_us, (o."end" - w.origin) / 1000.0 AS end_us
        FROM gpu_op o JOIN shown w ON o.rank = w.rank AND o."end" > w.origin AND (w.until IS NULL OR o.start < w.until) LEFT JOIN name n USING (name_id)
        QUALIFY row_number() OVER (PARTITION BY o.rank ORDER BY o.start, o."end", o.stream, o.corr) <= {MAX_OPS} / (SELECT n FROM ranks)
        ORDER BY o.rank, o.stream, o.start, o."end", o.corr""")


def _marks(store: Store, findings: Iterable[Finding]) -> Iterator[dict[str, Any]]:
    """Evidence that falls into the shown window, as much of it as does, on its own stream's lane."""
    shown = {row["rank"]: row for row in store.query(_WINDOW)}
    for finding in findings:
        for item in finding.evidence:
            window = shown.get(item.rank)
            if window is None or item.start_ns is None or item.end_ns is None or item.end_ns <= window["origin"]:
                continue
            until = item.end_ns if window["until"] is None else window["until"]
            if item.start_ns < until:
                yield {
                    "rank": item.rank, "device": item.device, "stream": item.stream, "kind": "finding", "name": f"{finding.rule} {finding.name}", "bytes": None,
                    "start_us": max(0, item.start_ns - window["origin"]) / 1000.0, "end_us": (min(item.end_ns, until) - window["origin"]) / 1000.0,
                }


def _memory(store: Store) -> Rows:
    rows = store.query("""
        SELECT rank, device, step, max(allocated) / 1048576.0 AS allocated_mib, max(reserved) / 1048576.0 AS reserved_mib
        FROM mem_sample WHERE step IS NOT NULL AND allocated IS NOT NULL AND (device >= 0 OR NOT EXISTS (SELECT 1 FROM mem_sample WHERE device >= 0))
        GROUP BY rank, device, step ORDER BY rank, device, step""")
    return rows or store.query("""
        WITH sums AS (SELECT rank, device, t, corr, coalesce(total, sum(bytes) OVER (PARTITION BY rank, device, source ORDER BY t, corr, address, bytes)) AS total
                      FROM gpu_mem WHERE coalesce(kind, 'device') = 'device'),
        spans AS (SELECT *, ntile(300) OVER (PARTITION BY rank, device ORDER BY t, corr, total) AS part FROM sums)
        SELECT rank, device, (min(t) - (SELECT min(t) FROM gpu_mem)) / 1e6 AS ms, max(total) / 1048576.0 AS allocated_mib
        FROM spans GROUP BY rank, device, part ORDER BY rank, device, ms""")


def _ridges(store: Store) -> Rows:
    """Share of gradient elements by log2 magnitude, for the largest parameters and evenly chosen steps; summed over ranks."""
    return store.query(f"""
        WITH largest AS (SELECT param_id, any_value(name) AS name, max(numel) AS numel FROM param GROUP BY param_id ORDER BY numel DESC, param_id LIMIT {MAX_PARAMS}),
        numbered AS (SELECT step, row_number() OVER (ORDER BY step) AS i, count(*) OVER () AS n FROM (SELECT DISTINCT step FROM grad_hist)),
        chosen AS (SELECT step FROM numbered WHERE i = 1 OR i = n OR i % greatest(1, n // {MAX_STEPS} + 1) = 0),
        counts AS (SELECT param_id, step, bin, sum(count) AS count FROM grad_hist WHERE stage = 'reduced' AND step IN (SELECT step FROM chosen) GROUP BY ALL)
        SELECT coalesce(l.name, 'parameter ' || param_id) AS param, step, bin, count / sum(count) OVER (PARTITION BY param_id, step) AS share
        FROM counts JOIN largest l USING (param_id) WHERE count > 0 ORDER BY param, step, bin""")


def _phases(store: Store) -> Rows:
    return store.query("""
        UNPIVOT (SELECT rank, median(data_ns) / 1e6 AS data, median(forward_ns) / 1e6 AS forward, median(backward_ns) / 1e6 AS backward,
                        median(optimizer_ns) / 1e6 AS optimizer
                 FROM step WHERE NOT coalesce(warmup, false) GROUP BY rank)
        ON data, forward, backward, optimizer INTO NAME phase VALUE ms ORDER BY rank, phase""")
