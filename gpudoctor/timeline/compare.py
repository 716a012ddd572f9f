"""What changed in time between two subjects: medians of their steady steps, with the noise of the steps as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpudoctor.errors import InconclusiveError
from gpudoctor.timeline.store import Store

MIN_STEPS = 3
MIN_CHANGE = 0.02
"""Changes under this share of the value before are not told as better or worse."""
_RESAMPLES = 1000
_MOST_STEPS = 2000
_ALIKE = 0.3

Verdict = Literal["worse", "better", "same"]


@dataclass(frozen=True, slots=True)
class Change:
    """One measure before and after, per step: medians in `unit` (ns, B or n), and the 95 % band of after minus before.

    `low` and `high` are null for what has one value only. Less is better for every measure.
    """

    what: str
    unit: str
    before: float
    after: float
    low: float | None
    high: float | None

    @property
    def share(self) -> float | None:
        """Change as a share of the value before; null where that is 0."""
        return (self.after - self.before) / self.before if self.before else None

    @property
    def verdict(self) -> Verdict:
        """Worse or better only beyond the noise and beyond `MIN_CHANGE`."""
        change = self.after - self.before
        if abs(change) <= MIN_CHANGE * abs(self.before) or change == 0:
            return "same"
        if self.low is not None and self.high is not None and self.low <= 0 <= self.high:
            return "same"
        return "worse" if change > 0 else "better"


_SERIES = {
    # From one step's first GPU work to the next one's: the host may run ahead. Without a GPU the host's own time.
    "step time": ("ns", """SELECT step, max(span) AS value FROM step_time WHERE NOT warmup GROUP BY step
        UNION ALL SELECT step, max("end" - start) FROM step WHERE NOT coalesce(warmup, false) AND NOT EXISTS (SELECT 1 FROM step_time) GROUP BY step"""),
    "host time in the step": ("ns", 'SELECT step, max("end" - start) AS value FROM step WHERE NOT coalesce(warmup, false) AND EXISTS (SELECT 1 FROM step_time) GROUP BY step'),
    "GPU idle": ("ns", "SELECT step, avg(idle) AS value FROM step_time WHERE NOT warmup GROUP BY step"),
    "GPU compute": ("ns", "SELECT step, avg(compute) AS value FROM step_time WHERE NOT warmup GROUP BY step"),
    "communication": ("ns", "SELECT step, avg(comm) AS value FROM step_time WHERE NOT warmup GROUP BY step"),
    "exposed communication": ("ns", "SELECT step, avg(exposed) AS value FROM step_time WHERE NOT warmup GROUP BY step"),
    "host waits for the GPU": ("ns", """SELECT s.step, coalesce(sum(w.ns), 0) / count(DISTINCT s.rank) AS value FROM traced_step s
        LEFT JOIN host_wait w ON w.rank = s.rank AND w.step = s.step WHERE NOT s.warmup AND s.rank IN (SELECT rank FROM api) GROUP BY s.step"""),
    "synchronising calls": ("n", """SELECT s.step, coalesce(sum(w.count), 0) / count(DISTINCT s.rank) AS value FROM traced_step s
        LEFT JOIN host_wait w ON w.rank = s.rank AND w.step = s.step WHERE NOT s.warmup AND s.rank IN (SELECT rank FROM api) GROUP BY s.step"""),
    "waiting for data": ("ns", "SELECT step, max(data_ns) AS value FROM step WHERE NOT coalesce(warmup, false) AND data_ns IS NOT NULL GROUP BY step"),
}
_PEAKS = {
    "peak device memory": ("B", """SELECT max(peak) AS value FROM (
        SELECT max(total) AS peak FROM gpu_mem WHERE device >= 0
        UNION ALL SELECT max(greatest(coalesce(peak_reserved, 0), coalesce(reserved, 0))) FROM mem_sample WHERE device >= 0)"""),
}


def compare_time(a: Store, b: Store) -> list[Change]:
    """Compare the steady steps of two stores; empty if neither holds steps.

    Raises InconclusiveError if one lacks `MIN_STEPS` steady steps, or if the kernels of the two have too little in common
    to be the same work.
    """
    lengths = [len(_series(store, _SERIES["step time"][1])) for store in (a, b)]
    if not any(lengths):
        return []
    for which, count in zip(("first", "second"), lengths, strict=True):
        if count < MIN_STEPS:
            raise InconclusiveError(f"the {which} subject has {count} steps after warm-up, {MIN_STEPS} are needed; mark steps with NVTX ranges or record more")
    _require_same_work(a, b)
    changes = []
    for what, (unit, sql) in _SERIES.items():
        before, after = _series(a, sql), _series(b, sql)
        if len(before) >= MIN_STEPS and len(after) >= MIN_STEPS and (any(before) or any(after)):
            changes.append(Change(what, unit, float(np.median(before)), float(np.median(after)), *band(before, after)))
    for what, (unit, sql) in _PEAKS.items():
        peaks = [store.query(sql)[0]["value"] for store in (a, b)]
        if all(peaks):
            changes.append(Change(what, unit, float(peaks[0]), float(peaks[1]), None, None))
    return changes


def band(before: Sequence[float], after: Sequence[float]) -> tuple[float, float]:
    """The 95 % bootstrap band of the difference of medians, after minus before; the seed is fixed."""
    rng = np.random.default_rng(0)
    first, second = (_resampled_medians(np.asarray(v, dtype=np.float64), rng) for v in (before, after))
    low, high = np.quantile(second - first, [0.025, 0.975])
    return float(low), float(high)


def _resampled_medians(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], rng: np.random.Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    if len(values) > _MOST_STEPS:
        values = rng.choice(values, _MOST_STEPS, replace=False)
    picked = rng.integers(0, len(values), (_RESAMPLES, len(values)))
    medians: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.median(values[picked], axis=1)
    return medians


def _series(store: Store, sql: str) -> list[float]:
    return [float(r["value"]) for r in store.query(f"SELECT value FROM ({sql}) WHERE value IS NOT NULL ORDER BY step")]


def _require_same_work(a: Store, b: Store) -> None:
    """Refuse to compare captures whose kernels, weighed by time, share less than `_ALIKE`; a side without kernels may be compared by steps."""
    first, second = _work(a), _work(b)
    if first and second:
        shared = sum(min(share, second.get(name, 0.0)) for name, share in first.items())
        if shared < _ALIKE:
            raise InconclusiveError(f"the two captures ran different work: {shared:.0%} of their kernel time is in the same kernels")


def _work(store: Store) -> Mapping[str, float]:
    rows = store.query("SELECT n.text AS name, sum(o.\"end\" - o.start) AS ns FROM op o JOIN name n USING (name_id) WHERE o.kind = 'kernel' AND o.step IS NOT NULL GROUP BY n.text")
    total = sum(r["ns"] for r in rows) or 1
    return {r["name"]: float(r["ns"]) / float(total) for r in rows}
