"""Kineto traces (torch.profiler) → canonical tables; one rank a file."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpudoctor.timeline.ingest.capture import describe, drop_impossible
from gpudoctor.timeline.ingest.kineto_events import Args, Event, Trace, decode
from gpudoctor.timeline.ingest.kineto_stacks import add_stacks
from gpudoctor.timeline.ingest.kineto_sync import add_sync
from gpudoctor.timeline.ingest.names import is_comm
from gpudoctor.timeline.ingest.nesting import nested
from gpudoctor.timeline.store import Store

_SIGNS = re.compile(rb'"(traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:|^\s*\[\s*\{[^{}]{0,400}"ph"\s*:')
_KINDS = {
    "kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset",
    "cuda_runtime": "api", "cuda_driver": "api", "runtime": "api", "hip_runtime": "api", "driver": "api",
    "cpu_op": "op", "operator": "op", "user_annotation": "range", "annotation": "range",
    "python_function": "python", "cuda_sync": "sync", "cpu_instant_event": "instant",
}
_COPY = re.compile(r"Memcpy (\w)to(\w) \((\w+) -> (\w+)\)")
_MEMORY = {"pageable", "pinned", "device", "array", "managed"}
_BYTES = {"byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "short": 2, "float": 4, "int": 4, "double": 8, "long": 8}
_NO_ARGS = Args()


def matches(head: bytes, path: Path) -> bool:
    """True for JSON that begins like a Chrome trace."""
    return head.lstrip()[:1] in (b"{", b"[") and _SIGNS.search(head) is not None


def read(path: Path, rank: int | None, store: Store) -> None:
    """Add one trace (plain or `.gz`) to the store, as `rank`, else as the rank it names, else as 0.

    A trace whose end is missing is read as far as it goes. Raises InputError if it is no trace.
    """
    decoded = decode(path)
    trace = decoded.trace
    said = trace.distributedInfo
    if rank is None:
        rank = said.rank if said and said.rank is not None else 0
    _Reading(rank, store).fill(trace)
    world = said.world_size if said else None
    store.add_rows("rank_info", [{"rank": rank, "world_size": world, "backend": said.backend if said else None}])
    runtime = trace.cuda_runtime_version or trace.hip_runtime_version
    describe(store, path, "kineto", {
        "tool": "Kineto", "version": str(trace.schemaVersion or runtime or "?"), "truncated": decoded.truncated, "world_size": world,
        "epoch_ns": trace.baseTimeNanoseconds or 0, "graph_trace": "node",
    }, drop_impossible(store))


class _Reading:
    def __init__(self, rank: int, store: Store) -> None:
        self.rank, self.store = rank, store

    def fill(self, trace: Trace) -> None:
        groups = _by_kind(trace.traceEvents)
        trace.traceEvents = []
        store = self.store
        self.gpu(groups)
        self.api(groups["api"])
        add_sync(store, self.rank, groups["sync"], self.columns)
        add_stacks(store, self.rank, groups.pop("python", []), groups["api"], groups["op"], self.columns)
        self.host(groups.pop("op", []), groups.pop("range", []))
        self.memory(groups["instant"])
        self.gpus(trace.deviceProperties or [])
        store.captured |= {"name", "rank_info"}

    def columns(self, events: list[Event], named: bool = True) -> dict[str, Any]:
        """rank, tid, start and end of events, and their name ids if `named`."""
        start = nanoseconds([e.ts for e in events])
        columns = {
            "rank": pa.repeat(pa.scalar(self.rank, pa.int64()), len(events)), "tid": threads(events),
            "start": start, "end": pc.add(start, nanoseconds([e.dur for e in events])),
        }
        return columns | {"name_id": self.store.intern(pa.array([e.name for e in events], pa.string()))} if named else columns

    def gpu(self, groups: dict[str, list[Event]]) -> None:
        events = [e for kind in ("kernel", "memcpy", "memset") for e in groups[kind]]
        if not events:
            return
        args = [e.args or _NO_ARGS for e in events]
        kinds = ["comm" if is_comm(e.name) else "kernel" for e in groups["kernel"]]
        kinds += ["memcpy"] * len(groups["memcpy"]) + ["memset"] * len(groups["memset"])
        copies = [copy_of(e.name) if k == "memcpy" else (None, None, None) for k, e in zip(kinds, events, strict=True)]
        shared = self.columns(events)
        del shared["tid"]
        self.store.add("gpu_op", pa.table({
            **shared, "kind": pa.array(kinds),
            "device": integers([a.device for a in args]), "context": pc.fill_null(integers([a.context for a in args]), 0), "stream": integers([a.stream for a in args]),
            "corr": integers([a.correlation for a in args]), "bytes": integers([a.bytes if a.bytes is not None else _message(a) for a in args]),
            **{n: pa.array([c[i] for c in copies], pa.string()) for i, n in enumerate(("copy_kind", "src_mem", "dst_mem"))},
            "graph_node": _positive(integers([a.graph_node for a in args])), "graph": _positive(integers([a.graph for a in args])),
        }))
        self.store.connection.execute("""INSERT INTO stream (rank, device, context, stream, flags)
            SELECT DISTINCT rank, device, context, stream, CASE WHEN stream IN (0, 7) THEN 'default' ELSE 'unknown' END FROM gpu_op""")
        self.store.captured.add("stream")

    def api(self, events: list[Event]) -> None:
        if events:
            corr = integers([(e.args or _NO_ARGS).correlation for e in events])
            self.store.add("api", pa.table({**self.columns(events), "corr": corr}))

    def host(self, operators: list[Event], ranges: list[Event]) -> None:
        """Operators and annotations; old traces list `ProfilerStep#3` and `Optimizer.step#SGD.step` as operators."""
        named = [e for e in operators if "#" in e.name and "::" not in e.name]
        if named:
            operators = [e for e in operators if "#" not in e.name or "::" in e.name]
        for table, events in (("cpu_op", operators), ("nvtx", ranges + named)):
            if events:
                rows = pa.table(self.columns(events))
                if table == "cpu_op":
                    args = [e.args or _NO_ARGS for e in events]
                    rows = rows.append_column("external", integers([a.external if a.external is not None else a.external_old for a in args]))
                cursor = self.store.connection.cursor()
                cursor.register("host_rows", rows)
                cursor.execute(nested(table, "SELECT * FROM host_rows WHERE \"end\" >= start"))
                cursor.close()
                self.store.captured.add(table)

    def memory(self, events: list[Event]) -> None:
        seen = [(e, e.args) for e in events if e.name == "[memory]" and e.args and e.args.device_type not in (0, None)]
        if seen:
            self.store.add("gpu_mem", pa.table({
                "rank": pa.repeat(pa.scalar(self.rank, pa.int64()), len(seen)), "t": nanoseconds([e.ts for e, _ in seen]),
                "device": integers([a.device_id for _, a in seen]), "bytes": integers([a.memory_bytes for _, a in seen]),
                "total": integers([a.allocated for _, a in seen]), "address": integers([a.address for _, a in seen]),
                "source": pa.repeat("allocator", len(seen)), "kind": pa.repeat("device", len(seen)),
            }))

    def gpus(self, devices: list[dict[str, Any]]) -> None:
        used = {d for (d,) in self.store.connection.execute("SELECT DISTINCT device FROM gpu_op").fetchall()}
        rows = [d for d in devices if isinstance(d.get("id"), int) and d["id"] in used]
        self.store.add_rows("gpu", [{
            "device": d["id"], "name": str(d.get("name", ""))[:200], "memory": _whole(d.get("totalGlobalMem")), "sm_count": _whole(d.get("numSms")),
            "arch": f"{_whole(d.get('computeMajor'))}.{_whole(d.get('computeMinor'))}",
        } for d in rows])


def _by_kind(events: Iterable[Event]) -> dict[str, list[Event]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    kinds: dict[str, str] = {}
    for event in events:
        if event.ph == "X" or event.name == "[memory]":
            kind = kinds.get(event.cat)
            if kind is None:
                kind = kinds[event.cat] = _KINDS.get(event.cat.lower(), "instant" if not event.cat else "other")
            groups[kind].append(event)
    groups.pop("other", None)
    return groups


def nanoseconds(micros: list[Any]) -> pa.Array:
    """µs (float or Decimal) → int64 ns, exact to the third decimal; null where it does not fit."""
    if micros and not isinstance(micros[0], float):
        return integers([round(m * 1000) for m in micros])
    values = pa.array(micros, pa.float64())
    values = pc.if_else(pc.less(pc.abs(values), 4e15), values, None)
    whole = pc.floor(values)
    part = pc.round(pc.multiply(pc.subtract(values, whole), 1000.0))
    return pc.add(pc.multiply(whole.cast(pa.int64()), 1000), part.cast(pa.int64()))


def integers(values: list[int | None]) -> pa.Array:
    """int64; null where a value does not fit."""
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([v if v is not None and -(1 << 63) <= v < 1 << 63 else None for v in values], pa.int64())


def threads(events: list[Event]) -> pa.Array:
    """Thread ids; names that are no numbers get negative ones."""
    tids: dict[Any, int] = {}
    for tid in {e.tid for e in events}:
        tids[tid] = int(tid) if isinstance(tid, int) or (isinstance(tid, str) and tid.isdigit()) else -1 - len(tids)
    return integers([tids[e.tid] for e in events])


def copy_of(name: str) -> tuple[str | None, str, str]:
    """Direction, source and destination memory of `Memcpy HtoD (Pinned -> Device)`."""
    match = _COPY.match(name)
    if match is None:
        return None, "unknown", "unknown"
    kind = {"HD": "h2d", "DH": "d2h", "DD": "d2d", "PP": "p2p", "HH": "h2h", "HA": "h2d", "AH": "d2h"}.get(match[1] + match[2], "d2d")
    source, target = (m.lower() if m.lower() in _MEMORY else "unknown" for m in (match[3], match[4]))
    return kind, source, target


def _message(args: Args) -> int | None:
    if args.elements is None or args.dtype is None:
        return None
    size = _BYTES.get(args.dtype.lower())
    return args.elements * size if size else None


def _positive(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.greater(values, 0), values, None)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else None
