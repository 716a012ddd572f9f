"""How each device spent each step: the tables `step_time`, `exposed_comm` and `idle`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gpudoctor.timeline.clocks import Ints, Mask
from gpudoctor.timeline.intervals import Cuts, runs, sweep
from gpudoctor.timeline.store import Store

COMM, COMPUTE, COPY = range(3)
SHORTEST_GAP = 2000
"""Kernels that follow each other leave about a microsecond; from two on it is a gap [ns]."""

_CREATE = """
CREATE OR REPLACE TABLE step_time (rank BIGINT, device BIGINT, step BIGINT, warmup BOOLEAN, start BIGINT, "end" BIGINT, span BIGINT, busy BIGINT,
    idle BIGINT, gaps BIGINT, compute BIGINT, comm BIGINT, hidden BIGINT, exposed BIGINT, copy_exposed BIGINT, concurrent BIGINT);
CREATE OR REPLACE TABLE exposed_comm (rank BIGINT, device BIGINT, step BIGINT, warmup BOOLEAN, start BIGINT, "end" BIGINT);
CREATE OR REPLACE TABLE idle (rank BIGINT, device BIGINT, step BIGINT, warmup BOOLEAN, start BIGINT, "end" BIGINT)
"""


def measure_steps(store: Store) -> None:
    """Fill the three tables from `op` and `gpu_step`."""
    connection = store.connection
    connection.execute(_CREATE)
    steps: dict[tuple[int, int], list[tuple[int, int | None, bool]]] = {}
    for row in store.query("SELECT rank, device, start, step, warmup FROM gpu_step ORDER BY rank, device, start, step NULLS LAST"):
        steps.setdefault((row["rank"], row["device"]), []).append((row["start"], row["step"], row["warmup"]))
    for (rank, device), bounds in steps.items():
        work = connection.execute(
            "SELECT start, \"end\", CASE kind WHEN 'comm' THEN 0 WHEN 'kernel' THEN 1 ELSE 2 END AS kind FROM op WHERE rank = ? AND device IS NOT DISTINCT FROM ?",
            [rank, device]).fetchnumpy()
        cuts = sweep(np.asarray(work["start"]), np.asarray(work["end"]), np.asarray(work["kind"]), 3)
        _measure(store, rank, device, cuts, bounds)


def _measure(store: Store, rank: int, device: int, cuts: Cuts, bounds: list[tuple[int, int | None, bool]]) -> None:
    begins = np.array([b for b, _, _ in bounds], dtype=np.int64)
    numbers = np.array([-1 if s is None else s for _, s, _ in bounds], dtype=np.int64)
    warm = np.array([w for _, _, w in bounds], dtype=bool)
    at = np.searchsorted(begins, cuts.start, side="right") - 1
    inside = (at >= 0) & (numbers[np.maximum(at, 0)] >= 0)
    cuts = Cuts(cuts.start[inside], cuts.end[inside], cuts.count[:, inside])
    at = at[inside]
    comm, compute, copy = (cuts.count[k] > 0 for k in (COMM, COMPUTE, COPY))
    busy = comm | compute | copy
    present = np.unique(at)

    def total(chosen: Mask) -> Ints:
        summed: Ints = np.bincount(at[chosen], weights=cuts.length[chosen], minlength=len(bounds))[present].astype(np.int64)
        return summed

    first, last = np.searchsorted(at, present), np.searchsorted(at, present, side="right") - 1
    _insert(store, "step_time", rank, device, {
        "step": numbers[present], "warmup": warm[present], "start": cuts.start[first], "end": cuts.end[last],
        "span": total(busy | ~busy), "busy": total(busy), "idle": total(~busy), "gaps": np.bincount(at[~busy], minlength=len(bounds))[present],
        "compute": total(compute), "comm": total(comm), "hidden": total(comm & compute), "exposed": total(comm & ~compute),
        "copy_exposed": total(copy & ~comm & ~compute), "concurrent": total(cuts.count.sum(axis=0) > 1),
    })
    for table, chosen, least in (("exposed_comm", comm & ~compute, 1), ("idle", ~busy, SHORTEST_GAP)):
        start, end = runs(cuts.start, cuts.end, chosen)
        long = end - start >= least
        where = np.searchsorted(begins, start[long], side="right") - 1
        _insert(store, table, rank, device, {"step": numbers[where], "warmup": warm[where], "start": start[long], "end": end[long]})


def _insert(store: Store, table: str, rank: int, device: int, columns: dict[str, Ints | Mask]) -> None:
    count = len(columns["step"])
    data = pa.table({"rank": pa.repeat(pa.scalar(rank, pa.int64()), count), "device": pa.repeat(pa.scalar(device, pa.int64()), count),
                     **{name: pa.array(values) for name, values in columns.items()}})
    store.add(table, data)
