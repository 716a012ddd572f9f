"""Kineto traces (torch.profiler) → canonical tables; one rank a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpudoctor.timeline.ingest.capture import contents_of, describe, possible
from gpudoctor.timeline.ingest.kineto_columns import Extract, extract
from gpudoctor.timeline.ingest.kineto_events import is_trace
from gpudoctor.timeline.ingest.kineto_stacks import add_stacks
from gpudoctor.timeline.ingest.kineto_sync import add_sync
from gpudoctor.timeline.ingest.nesting import nested
from gpudoctor.timeline.store import Store

_NAMED = ("gpu", "api", "op", "range")
_CANONICAL = {"gpu": "gpu_op", "api": "api", "op": "cpu_op", "range": "nvtx", "sync": "sync"}
_DEFAULT_STREAMS = pa.array([0, 7], pa.int64())


def matches(head: bytes, path: Path) -> bool:
    """True for JSON that begins like a Chrome trace."""
    return is_trace(head)


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
        trace, ranks = self._extracted, range(rank, rank + 1)
        rows = sum(table.num_rows for table in trace.tables.values())
        trace.tables = tables = {kind: _placed(kind, table, rank, shift_ns, store) for kind, table in trace.tables.items()}
        facts = _facts(trace) | {
            "epoch_ns": None if self.epoch_ns is None else self.epoch_ns - shift_ns, "dropped": rows - sum(table.num_rows for table in tables.values()),
        }
        describe(store, self.path, "kineto", ranks, facts | contents_of({_CANONICAL[kind]: table for kind, table in tables.items() if kind in _CANONICAL}))
        _fill(store, tables)
        _add_rank(store, trace, rank, shift_ns)
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


def _placed(kind: str, table: pa.Table, rank: int, shift_ns: int, store: Store) -> pa.Table:
    """The table with its rank, its times shifted, and name ids for names; without rows that cannot be true."""
    if kind in _NAMED:
        table = table.append_column("name_id", store.intern(table["name"]))
        table = table if kind == "api" else table.drop_columns(["name"])
    for column in {"start", "end", "t"} & set(table.column_names) if shift_ns else ():
        table = table.set_column(table.column_names.index(column), column, pc.add(table[column], shift_ns))
    table = possible(table)
    return table.append_column("rank", _constant(rank, table))


def _fill(store: Store, tables: dict[str, pa.Table]) -> None:
    """Add the tables of one trace to the store."""
    streams = 0
    if (gpu := tables.get("gpu")) is not None:
        store.add("gpu_op", gpu)
        known = gpu.group_by(["rank", "device", "context", "stream"]).aggregate([])
        store.add("stream", known.append_column("flags", pc.if_else(pc.is_in(known["stream"], value_set=_DEFAULT_STREAMS), "default", "unknown")))
        streams = known.num_rows
    if (api := tables.get("api")) is not None:
        store.add("api", api.drop_columns(["external", "name"]))
    add_sync(store, api, tables.get("sync"), streams)
    add_stacks(store, tables)
    if "op" in tables:
        store.add("cpu_op", tables.pop("op").drop_columns(["stack"]))
    if "range" in tables:
        store.add("nvtx", store.compute(nested("FROM rows"), rows=tables.pop("range")))
    if "memory" in tables:
        memory = tables.pop("memory")
        store.add("gpu_mem", memory.append_column("source", _constant("allocator", memory)).append_column("kind", _constant("device", memory)))


def _constant(value: Any, table: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()) if isinstance(value, int) else pa.scalar(value), table.num_rows)


def _add_rank(store: Store, trace: Extract, rank: int, shift_ns: int) -> None:
    """What is known of the rank, and the cards that it used and no other trace has told of."""
    said = trace.about.distributedInfo
    devices = trace.tables["gpu"]["device"] if "gpu" in trace.tables else pa.chunked_array([[]], pa.int64())
    often = pc.mode(devices)
    store.add_rows("rank_info", [{
        "rank": rank, "world_size": _world(trace), "backend": said.backend if said else None, "device": often[0]["mode"].as_py() if len(often) else None,
        "clock_offset": shift_ns or None,
    }])
    new = set(pc.unique(devices).to_pylist()) - set(store.table("gpu")["device"].to_pylist())
    store.add_rows("gpu", [{
        "device": d["id"], "name": str(d.get("name", ""))[:200], "memory": _whole(d.get("totalGlobalMem")), "sm_count": _whole(d.get("numSms")),
        "arch": f"{_whole(d.get('computeMajor'))}.{_whole(d.get('computeMinor'))}",
    } for d in trace.about.deviceProperties or () if isinstance(d.get("id"), int) and d["id"] in new])
    store.captured |= {"name", "rank_info"}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else None
