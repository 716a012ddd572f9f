"""Find the training steps of ranks whose source wrote none.

In this order: the profiler's own marks, NVTX ranges that are named like steps and repeat, the ends of optimizer ranges
and of optimizer kernels, and at last a kernel that comes back at the same place of the launch order. A rank in which
none of them repeats gets no steps, and the rules that need steps abstain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from gpudoctor.cpus import cpus
from gpudoctor.timeline.clocks import Ints
from gpudoctor.timeline.store import Store

_PROFILER = re.compile(r"^ProfilerStep#(\d+)$")
_STEP = re.compile(
    r"^(?:[\w .:/#-]*?[\s_:./#-])?(?:train(?:ing)?[\s_-]?)?(step|iter|iteration|batch|mini-?batch)"
    r"(?:[\s_:#=.-]*\d+)?(?:\s*(?:/|of)\s*\d+)?$", re.IGNORECASE)
_NOT_A_STEP = re.compile(
    r"optim|sched|scaler|forward|backward|fwd|bwd|data|load|fetch|copy|\bval|eval|test|log|zero|sampl|decode|generat|\blr|prefetch|next", re.IGNORECASE)
_WARMUP = re.compile(r"warm[\s_-]*(?:up)?[\s_:-]*", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")

MIN_STEPS = 3
SLOW = 1.5


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank on the host's clock [ns]; `number` counts from 0 unless the profiler gave one."""

    rank: int
    number: int
    start: int
    end: int
    warmup: bool
    source: str


def find_steps(store: Store) -> None:
    """Fill the table `step` for every rank that has GPU work or calls and no steps yet."""
    known = {r["rank"] for r in store.query('SELECT DISTINCT rank FROM "step"')}
    ranks = [r["rank"] for r in store.query("SELECT rank FROM gpu_op GROUP BY rank UNION SELECT rank FROM api GROUP BY rank ORDER BY rank") if r["rank"] is not None]
    marks = _marks(store)
    with ThreadPoolExecutor(cpus()) as pool:
        found = pool.map(lambda rank: from_marks(rank, marks.get(rank, ())) or _from_ends(store, rank) or _from_period(store, rank), [r for r in ranks if r not in known])
        rows = [{"rank": s.rank, "step": s.number, "start": s.start, "end": s.end, "warmup": s.warmup, "source": s.source} for steps in found for s in steps]
    if rows:
        store.add_rows("step", rows)


Mark = tuple[str, int, int, int]
"""text, thread, start, end"""


def _marks(store: Store) -> dict[int, list[Mark]]:
    texts = store.query("SELECT name_id, text FROM name WHERE regexp_matches(lower(text), 'step|iter|batch')")
    wanted = [t["name_id"] for t in texts if t["text"] and (_PROFILER.match(t["text"]) or is_step_name(t["text"]))]
    found: dict[int, list[Mark]] = {}
    if wanted:
        rows = store.query(
            'SELECT v.rank, n.text, v.tid, v.start, v."end" FROM nvtx v JOIN name n USING (name_id) '
            'WHERE list_contains($wanted, v.name_id) AND v."end" > v.start AND v."end" - v.start < 1000000000000000 ORDER BY v.rank, v.start, v."end", v.tid, n.text', {"wanted": wanted})
        for row in rows:
            found.setdefault(row["rank"], []).append((row["text"], row["tid"], row["start"], row["end"]))
    return found


def is_step_name(text: str) -> bool:
    """True for `step`, `train_step 12`, `Iteration: 3/100`; false for `optimizer step` and its like."""
    return len(text) < 80 and _STEP.match(text) is not None and _NOT_A_STEP.search(text) is None


def from_marks(rank: int, marks: Sequence[Mark]) -> list[Step]:
    """Steps from ranges that bear a step's name; of several kinds that repeat, the one that covers most time."""
    profiler = [(m, found) for m in marks if (found := _PROFILER.match(m[0]))]
    if profiler:
        unique = {int(found[1]): (m[2], m[3]) for m, found in profiler}
        return _steps(rank, sorted((start, end, n) for n, (start, end) in unique.items()), "profiler")
    kinds: dict[tuple[int, str], list[Mark]] = {}
    for mark in marks:
        kinds.setdefault((mark[1], _DIGITS.sub("#", _WARMUP.sub("", mark[0])).strip(" -_#").lower()), []).append(mark)
    fitting = [k for k in kinds.values() if len(k) >= MIN_STEPS and all(a[3] <= b[2] for a, b in pairwise(k))]
    if not fitting:
        return []
    best = max(fitting, key=lambda k: (sum(m[3] - m[2] for m in k), -len(k)))
    warm = [bool(_WARMUP.search(m[0])) for m in best]
    return _steps(rank, [(m[2], m[3], i) for i, m in enumerate(best)], "nvtx", warm if not all(warm) else None)


def _from_ends(store: Store, rank: int) -> list[Step]:
    """Steps between the ends of optimizer phases: ranges if there are, else runs of optimizer kernels."""
    ranges = store.query(
        'SELECT v.start, v."end" FROM nvtx v JOIN kind_of_name k USING (name_id) '
        "WHERE v.rank = $rank AND k.optimizer ORDER BY v.start, v.\"end\"", {"rank": rank})
    ends = _outermost_ends((r["start"], r["end"]) for r in ranges)
    if len(ends) <= MIN_STEPS:
        ends = list(_kernel_run_ends(store, rank))
    if len(ends) <= MIN_STEPS or not _regular(np.array([b - a for a, b in pairwise(ends)], dtype=np.int64)):
        return []
    return _between(rank, ends)


def _outermost_ends(spans: Iterator[tuple[int, int]]) -> list[int]:
    ends: list[int] = []
    for start, end in spans:
        if end is None or (ends and start < ends[-1]):
            continue
        ends.append(end)
    return ends


def _kernel_run_ends(store: Store, rank: int) -> Iterator[int]:
    times = store.query(
        "SELECT coalesce(a.\"end\", g.\"end\") AS t, k.optimizer AS optimizer FROM gpu_op g JOIN kind_of_name k USING (name_id) "
        "LEFT JOIN launch_call a ON a.rank = g.rank AND a.corr = g.corr WHERE g.rank = $rank AND g.kind = 'kernel' ORDER BY t, g.corr, g.start", {"rank": rank}
    ) if store.query("SELECT 1 FROM kind_of_name WHERE optimizer LIMIT 1") else []
    last, others = None, 0
    for row in times:
        if row["optimizer"]:
            last, others = row["t"], 0
        elif last is not None:
            others += 1
            if others == 3:
                yield last
                last = None
    if last is not None:
        yield last


def _from_period(store: Store, rank: int) -> list[Step]:
    """Steps from a kernel that comes back after the same number of launches, the widest such period."""
    table = store.compute(
        f"SELECT coalesce(g.start, -1) AS t, coalesce(g.name_id, -1) AS name, coalesce(g.corr, -1) AS corr FROM gpu_op g WHERE g.rank = {rank} AND g.kind IN ('kernel', 'comm') "
        "ORDER BY g.start, g.corr, g.name_id")
    names, times, corr = (table[c].to_numpy() for c in ("name", "t", "corr"))
    best: Ints | None = None
    if len(names) < 60:
        return []
    order = np.argsort(names, kind="stable")
    for where in np.split(order, np.flatnonzero(np.diff(names[order])) + 1):
        gaps = np.diff(where)
        if len(where) > MIN_STEPS and gaps.min() >= 20 and where[-1] - where[0] >= 0.6 * len(names) and _regular(gaps, 0.02, 1) and (best is None or len(where) < len(best)):
            best = where
    return [] if best is None else _between(rank, _launched(store, rank, corr[best].tolist(), times[best].tolist()))


def _launched(store: Store, rank: int, corr: list[int], times: list[int]) -> list[int]:
    """When the host launched these kernels; their own starts where it is not known for all of them in this order."""
    rows = store.query("SELECT corr, min(start) AS t FROM launch_call WHERE rank = $rank AND list_contains($corr, corr) GROUP BY corr", {"rank": rank, "corr": corr})
    found = {r["corr"]: r["t"] for r in rows}
    launched = [found.get(c, -1) for c in corr]
    return launched if all(a < b for a, b in pairwise([-1, *launched])) else times


def _regular(gaps: Ints, tolerance: float = 0.5, outliers: int | None = None) -> bool:
    """True if all gaps but `outliers` (a quarter of them if not given) lie near their median."""
    middle = float(np.median(gaps))
    allowed = len(gaps) // 4 if outliers is None else outliers
    return bool(middle > 0 and np.sum(np.abs(gaps - middle) > tolerance * middle) <= allowed)


def _between(rank: int, bounds: Sequence[int]) -> list[Step]:
    return _steps(rank, [(a, b, i) for i, (a, b) in enumerate(pairwise(bounds))], "inferred")


def _steps(rank: int, spans: Sequence[tuple[int, int, int]], source: str, warm: list[bool] | None = None) -> list[Step]:
    slow = _warmup([end - start for start, end, _ in spans])
    warm = [a or b for a, b in zip(slow, warm or slow, strict=True)]
    return [Step(rank, number, start, end, w, source) for (start, end, number), w in zip(spans, warm, strict=True)]


def _warmup(durations: Sequence[int]) -> list[bool]:
    """The leading steps that take more than `SLOW` times the median of all; at least two steps stay."""
    usual = median(durations) if durations else 0
    leading = 0
    while leading < len(durations) - 2 and durations[leading] > SLOW * usual:
        leading += 1
    return [i < leading for i in range(len(durations))]
