"""Kineto traces (torch.profiler) → canonical tables; one rank a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpudoctor.timeline.ingest.capture import describe, drop_impossible
from gpudoctor.timeline.ingest.kineto_columns import Extract, extract
from gpudoctor.timeline.ingest.kineto_stacks import add_stacks
from gpudoctor.timeline.ingest.kineto_sync import add_sync
from gpudoctor.timeline.ingest.nesting import nested
from gpudoctor.timeline.store import Store

_SIGNS = re.compile(rb'"(traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:|^\s*\[\s*\{[^{}]{0,400}"ph"\s*:')
_NAMED = ("gpu", "api", "op", "range")
_STREAMS = """INSERT INTO stream (rank, device, context, stream, flags)
SELECT DISTINCT rank, device, context, stream, CASE WHEN stream IN (0, 7) THEN 'default' ELSE 'unknown' END FROM gpu_op WHERE rank = $rank"""


def matches(head: bytes, path: Path) -> bool:
    """True for JSON that begins like a Chrome trace."""
    return head.lstrip()[:1] in (b"{", b"[") and _SIGNS.search(head) is not None


@contextmanager
def open_trace(path: Path) -> Iterator[KinetoTrace]:
    """Read a trace, plain or `.gz`, as far as it goes. InputError if it is none."""
    yield KinetoTrace(extract(path))


class KinetoTrace:
    """One extracted trace; satisfies `Trace`."""

    def __init__(self, extracted: Extract) -> None:
        self._extracted = extracted
        self.path = extracted.path
        self.notes: list[str] = []

    @property
    def stated_rank(self) -> int | None:
        said = self._extracted.about.distributedInfo
        return said.rank if said and said.rank is not None and 0 <= said.rank < 1 << 24 else None

    @property
    def epoch_ns(self) -> int | None:
        """Traces without a base time count from 1970."""
        base = self._extracted.about.baseTimeNanoseconds or 0
        return base if 0 <= base < 1 << 62 else None

    def fill(self, store: Store, rank: int, shift_ns: int = 0) -> range:
        _fill(self._extracted, rank, store, shift_ns)
        ranks = range(rank, rank + 1)
        epoch = None if self.epoch_ns is None else self.epoch_ns - shift_ns
        describe(store, self.path, "kineto", ranks, _facts(self._extracted) | {"epoch_ns": epoch}, drop_impossible(store))
        return ranks


def _facts(trace: Extract) -> dict[str, Any]:
    about = trace.about
    return {
        "tool": "Kineto", "version": None if about.schemaVersion is None else str(about.schemaVersion),
        "truncated": trace.truncated, "world_size": _world(trace), "graph_trace": "node",
    }


def _world(trace: Extract) -> int | None:
    said = trace.about.distributedInfo
    return said.world_size if said and said.world_size is not None and 0 < said.world_size < 1 << 24 else None


def _fill(trace: Extract, rank: int, store: Store, shift_ns: int) -> None:
    """Add an extracted trace to the store as `rank`; `shift_ns` is added to all its times."""
    trace.tables = {kind: _placed(table, rank, shift_ns, store if kind in _NAMED else None) for kind, table in trace.tables.items()}
    tables = trace.tables
    if "gpu" in tables:
        store.add("gpu_op", tables["gpu"])
        store.connection.execute(_STREAMS, {"rank": rank})
        store.captured.add("stream")
    if "api" in tables:
        store.add("api", tables["api"].drop_columns(["external"]))
    add_sync(store, rank, tables.get("sync"))
    add_stacks(store, tables)
    for kind, table in (("op", "cpu_op"), ("range", "nvtx")):
        if kind in tables:
            rows = tables.pop(kind)
            if table == "nvtx":
                _insert(store, nested(table, 'SELECT * FROM rows WHERE "end" >= start'), rows)
            else:
                store.add(table, rows.drop_columns(["stack"]))
            store.captured.add(table)
    if "memory" in tables:
        store.add("gpu_mem", tables["memory"].append_column("source", _constant("allocator", tables["memory"])).append_column("kind", _constant("device", tables["memory"])))
    _add_gpus(trace, store)
    _add_rank(trace, rank, shift_ns, store)


def _placed(table: pa.Table, rank: int, shift_ns: int, store: Store | None) -> pa.Table:
    """The table with its rank, its times shifted, and name ids for names if a store is given."""
    if store is not None:
        table = table.append_column("name_id", store.intern(table["name"])).drop_columns(["name"])
    for column in {"start", "end", "t"} & set(table.column_names) if shift_ns else ():
        table = table.set_column(table.column_names.index(column), column, pc.add(table[column], shift_ns))
    return table.append_column("rank", _constant(rank, table))


def _constant(value: Any, table: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()) if isinstance(value, int) else pa.scalar(value), table.num_rows)


def _insert(store: Store, statement: str, rows: pa.Table) -> None:
    cursor = store.connection.cursor()
    cursor.register("rows", rows)
    cursor.execute(statement)
    cursor.close()


def _add_rank(trace: Extract, rank: int, shift_ns: int, store: Store) -> None:
    said = trace.about.distributedInfo
    device = store.connection.execute("SELECT mode(device) FROM gpu_op WHERE rank = $rank", {"rank": rank}).fetchone() or (None,)
    store.add_rows("rank_info", [{
        "rank": rank, "world_size": _world(trace), "backend": said.backend if said else None, "device": device[0], "clock_offset": shift_ns or None,
    }])
    store.captured |= {"name", "rank_info"}


def _add_gpus(trace: Extract, store: Store) -> None:
    used = {d for (d,) in store.connection.execute("SELECT DISTINCT device FROM gpu_op WHERE device NOT IN (SELECT device FROM gpu WHERE device IS NOT NULL)").fetchall()}
    devices = [d for d in trace.about.deviceProperties or () if isinstance(d.get("id"), int) and d["id"] in used]
    store.add_rows("gpu", [{
        "device": d["id"], "name": str(d.get("name", ""))[:200], "memory": _whole(d.get("totalGlobalMem")), "sm_count": _whole(d.get("numSms")),
        "arch": f"{_whole(d.get('computeMajor'))}.{_whole(d.get('computeMinor'))}",
    } for d in devices])


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else None
