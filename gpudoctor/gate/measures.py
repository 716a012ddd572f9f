"""What a gate looks at in one run: a handful of numbers, and the findings by fingerprint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.errors import InconclusiveError
from gpudoctor.model import Finding
from gpudoctor.report.kept import load_kept, store_from
from gpudoctor.report.places import source_text
from gpudoctor.rundir import RunDir
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store

PHASES = ("data", "forward", "backward", "optimizer")
_ITEM_SIZE = "CASE dtype WHEN 'float64' THEN 8 WHEN 'int64' THEN 8 WHEN 'bfloat16' THEN 2 WHEN 'float16' THEN 2 WHEN 'int8' THEN 1 WHEN 'uint8' THEN 1 WHEN 'bool' THEN 1 ELSE 4 END"


@dataclass(slots=True)
class Measures:
    """One run in numbers; None where the run could not tell.

    step_ms: lower quartile of the job's steady step (slowest rank) [ms]; phases_ms: the same of each phase [ms];
    exposed_comm_ms and syncs_per_step: per steady step, worst rank; peak_memory_gib: fullest card [GiB];
    imbalance: (fullest − emptiest) / fullest card; comm_mib: bytes a rank sends into collectives per step [MiB];
    comm_sites: the same by `path` and the text of the calling line, which moved lines keep; comm_lines: where each site is
    now; gradients: per parameter the share of elements in each log2 bin.
    """

    step_ms: float | None = None
    phases_ms: dict[str, float] = field(default_factory=dict)
    exposed_comm_ms: float | None = None
    syncs_per_step: float | None = None
    peak_memory_gib: float | None = None
    imbalance: float | None = None
    comm_mib: float | None = None
    comm_sites: dict[str, float] = field(default_factory=dict)
    comm_lines: dict[str, int] = field(default_factory=dict)
    gradients: dict[str, dict[int, float]] = field(default_factory=dict)
    steps: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Measures:
        gradients = {name: {int(b): s for b, s in bins.items()} for name, bins in raw.get("gradients", {}).items()}
        return cls(**{**raw, "gradients": gradients})


def measure(folder: Path, root: Path = Path()) -> tuple[Measures, list[Finding]]:
    """Read a run folder of a script started in `root`; InconclusiveError if it holds no steps to measure."""
    run = RunDir.open(folder)
    findings = load_kept(folder).findings
    store = store_from(run.tables)
    if not store.count("step"):
        raise InconclusiveError(f"{folder}: no training steps were seen; the gate needs a script that steps an optimizer")
    derive(store)
    return _measures(store, root), findings


def _measures(store: Store, root: Path) -> Measures:
    sites, lines = _sites(store, root)
    memory = store.query("SELECT max(greatest(coalesce(peak_allocated, 0), coalesce(allocated, 0))) AS b FROM mem_sample WHERE device >= 0 GROUP BY rank, device")
    peaks = [m["b"] for m in memory if m["b"]]
    return Measures(
        step_ms=_scalar(store, f"SELECT quantile_cont(ns, 0.25) / 1e6 FROM (SELECT step, max(\"end\" - start) AS ns FROM step WHERE {_STEADY} GROUP BY step)"),
        phases_ms={p: v for p in PHASES if (v := _scalar(store, f"SELECT quantile_cont({p}_ns, 0.25) / 1e6 FROM step WHERE {_STEADY}")) is not None},
        exposed_comm_ms=_scalar(store, f"SELECT max(ns) FROM (SELECT avg(comm_ns) / 1e6 AS ns FROM step WHERE {_STEADY} GROUP BY rank)"),
        syncs_per_step=_syncs(store),
        peak_memory_gib=max(peaks) / 2**30 if peaks else None,
        imbalance=(max(peaks) - min(peaks)) / max(peaks) if len(peaks) > 1 else None,
        comm_mib=_scalar(store, f"SELECT max(b) FROM (SELECT sum(numel * {_ITEM_SIZE}) / 1048576.0 / {_STEPS} AS b FROM collective GROUP BY rank)") or _bucket_mib(store),
        comm_sites=sites, comm_lines=lines,
        gradients=_gradients(store),
        steps=int(_scalar(store, f"SELECT count(DISTINCT step) FROM step WHERE {_STEADY}") or 0),
    )


_STEADY = "NOT coalesce(warmup, false)"
_STEPS = "(SELECT greatest(1, count(DISTINCT step)) FROM step)"


def _sites(store: Store, root: Path) -> tuple[dict[str, float], dict[str, int]]:
    rows = store.query(f"""
        SELECT path, line, max(b) AS b FROM (
            SELECT rank, path, line, sum(numel * {_ITEM_SIZE}) / 1048576.0 / {_STEPS} AS b FROM collective WHERE path IS NOT NULL AND line IS NOT NULL GROUP BY rank, path, line)
        GROUP BY path, line ORDER BY path, line""")
    sites: dict[str, float] = {}
    lines: dict[str, int] = {}
    for row in rows:
        path, line = _below(row["path"], root), int(row["line"])
        site = f"{path}\t{source_text(root / path, line)}"
        sites[site] = sites.get(site, 0.0) + row["b"]
        lines[site] = line
    return sites, lines


def _below(path: str, root: Path) -> str:
    full = (root / path).resolve()
    return str(full.relative_to(root.resolve())) if full.is_relative_to(root.resolve()) else path


def _bucket_mib(store: Store) -> float | None:
    return _scalar(store, f"SELECT max(b) FROM (SELECT sum(numel * {_ITEM_SIZE}) / 1048576.0 / {_STEPS} AS b FROM bucket GROUP BY rank)")


def _syncs(store: Store) -> float | None:
    if not {"sync", "gpu_op"} <= store.captured:
        return None
    return _scalar(store, f"""
        SELECT max(n) FROM (SELECT s.rank, count(*)::DOUBLE / count(DISTINCT p.step) AS n
        FROM sync s JOIN traced_step p ON s.rank = p.rank AND s.start >= p.start AND s.start < p."end"
        WHERE s.kind IN ('stream', 'event', 'device') AND {_STEADY} GROUP BY s.rank)""") or 0.0


def _gradients(store: Store) -> dict[str, dict[int, float]]:
    rows = store.query("""
        WITH names AS (SELECT param_id, any_value(name) AS name FROM param GROUP BY param_id),
        counts AS (SELECT param_id, bin, sum(count) AS n FROM grad_hist WHERE stage = 'reduced' GROUP BY param_id, bin)
        SELECT name, bin, n / sum(n) OVER (PARTITION BY param_id) AS share FROM counts JOIN names USING (param_id) ORDER BY name, bin""")
    out: dict[str, dict[int, float]] = {}
    for row in rows:
        out.setdefault(row["name"], {})[int(row["bin"])] = row["share"]
    return out


def _scalar(store: Store, sql: str) -> float | None:
    value = next(iter(store.query(sql)[0].values()))
    return None if value is None else float(value)
