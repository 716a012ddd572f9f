"""Kineto events → Arrow columns, by kind; needs no database, so that worker processes stay small."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gpudoctor.timeline.clocks import Ints
from gpudoctor.timeline.ingest.kineto_events import About, Args, Event, TraceFile
from gpudoctor.timeline.ingest.names import is_comm

_KINDS = {
    "kernel": "kernel", "gpu_memcpy": "memcpy", "memcpy": "memcpy", "gpu_memset": "memset", "memset": "memset",
    "cuda_runtime": "api", "cuda_driver": "api", "runtime": "api", "hip_runtime": "api", "driver": "api",
    "cpu_op": "op", "operator": "op", "user_annotation": "range", "annotation": "range",
    "python_function": "python", "cuda_sync": "sync", "cpu_instant_event": "instant",
}
_COPY = re.compile(r"Memcpy (\w)to(\w) \((\w+) -> (\w+)\)")
_DIRECTION = {"HD": "h2d", "DH": "d2h", "DD": "d2d", "PP": "p2p", "HH": "h2h", "HA": "h2d", "AH": "d2h"}
_MEMORY = {"pageable", "pinned", "device", "array", "managed"}
_SIZES = {"byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "short": 2, "float": 4, "int": 4, "double": 8, "long": 8}
_NO_ARGS = Args()
_NAMES_AT_HAND = 4096
_LARGEST = 1 << 63
_NO_TIME = -_LARGEST
_LATEST = 4e15
"""µs since 1970 that make sense: a century."""


@dataclass(slots=True)
class Extract:
    """One trace as columns: tables `gpu`, `api`, `op`, `range`, `python`, `sync`, `memory` where it has such events.

    Names are dictionary columns; `start` and `end` are int64 ns on the trace's clock.
    """

    path: Path
    about: About
    truncated: bool
    tables: dict[str, pa.Table] = field(default_factory=dict)


def extract(path: Path) -> Extract:
    """Read one trace. InputError if it is none."""
    trace = TraceFile(path)
    parts: dict[str, list[pa.RecordBatch]] = defaultdict(list)
    for events in trace.batches():
        for kind, columns in _columns(_by_kind(events)).items():
            parts[kind].append(pa.RecordBatch.from_pydict(columns))
    return Extract(path, trace.about, trace.truncated, {k: pa.Table.from_batches(p).unify_dictionaries() for k, p in parts.items()})


def _by_kind(events: Iterable[Event]) -> dict[str, list[Event]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    kinds: dict[str, str] = {}
    for event in events:
        if event.ph == "X" or event.name == "[memory]":
            category = event.cat
            kind = kinds.get(category)
            if kind is None:
                kind = kinds[category] = "instant" if not category else _KINDS.get(category.lower(), "other")
            groups[kind].append(event)
    return groups


def _columns(groups: dict[str, list[Event]]) -> dict[str, dict[str, Any]]:
    """Columns of each kind that has events. Old traces list annotations such as `ProfilerStep#3` as operators."""
    operators = groups.pop("op", [])
    ranges = groups.pop("range", []) + [e for e in operators if "#" in e.name and "::" not in e.name]
    operators = [e for e in operators if "#" not in e.name or "::" in e.name]
    memory = [e for e in groups.pop("instant", []) if e.name == "[memory]" and e.args and e.args.device_type not in (0, None)]
    makers: dict[str, tuple[list[Event], Callable[[list[Event]], dict[str, Any]]]] = {
        "gpu": ([e for k in ("kernel", "memcpy", "memset") for e in groups.get(k, ())], _gpu),
        "api": (groups.get("api", []), _api), "op": (operators, _operators), "range": (ranges, _host),
        "python": (groups.get("python", []), _host), "sync": ([e for e in groups.get("sync", ()) if e.args], _sync), "memory": (memory, _memory),
    }
    return {kind: make(events) for kind, (events, make) in makers.items() if events}


def _gpu(events: list[Event]) -> dict[str, Any]:
    args = [e.args or _NO_ARGS for e in events]
    names = _names(events)
    about = [_gpu_name(n) for n in names.dictionary.to_pylist()]
    return {
        **_times(events), "name": names, **{c: _per_name([a[i] for a in about], names) for i, c in enumerate(("kind", "copy_kind", "src_mem", "dst_mem"))},
        "device": integers([a.device for a in args]), "context": integers([a.context or 0 for a in args]), "stream": integers([a.stream for a in args]),
        "corr": integers([a.correlation for a in args]), "bytes": integers([a.bytes if a.bytes is not None or a.elements is None else _message(a) for a in args]),
        "graph_node": _from(1, [a.graph_node for a in args], _LARGEST), "graph": _from(1, [a.graph for a in args], _LARGEST),
    }


@lru_cache(_NAMES_AT_HAND)
def _gpu_name(name: str) -> tuple[str, str | None, str | None, str | None]:
    """kind, copy_kind, src_mem and dst_mem of a GPU event; kinds are told apart by Kineto's own names for copies and sets."""
    if name.startswith("Memset"):
        return "memset", None, None, "device"
    if not name.startswith("Memcpy"):
        return "comm" if is_comm(name) else "kernel", None, None, None
    match = _COPY.match(name)
    if match is None:
        return "memcpy", None, "unknown", "unknown"
    source, target = (m.lower() if m.lower() in _MEMORY else "unknown" for m in (match[3], match[4]))
    return "memcpy", _DIRECTION.get(match[1] + match[2], "d2d"), source, target


def _message(args: Args) -> int | None:
    size = _SIZES.get((args.dtype or "").lower())
    return args.elements * size if size and args.elements is not None else None


def _host(events: list[Event]) -> dict[str, Any]:
    return {**_times(events), "name": _names(events), "tid": _threads(events)}


def _api(events: list[Event]) -> dict[str, Any]:
    args = [e.args or _NO_ARGS for e in events]
    return {**_host(events), "corr": integers([a.correlation for a in args]), "external": _external(args)}


def _operators(events: list[Event]) -> dict[str, Any]:
    args = [e.args or _NO_ARGS for e in events]
    return {**_host(events), "external": _external(args), "stack": pa.array([a.call_stack for a in args], pa.string()).dictionary_encode()}


def _sync(events: list[Event]) -> dict[str, Any]:
    args = [e.args or _NO_ARGS for e in events]
    kinds = pa.array([a.sync_kind or e.name for e, a in zip(events, args, strict=True)], pa.string()).dictionary_encode()
    return {
        **_times(events), "name": kinds, "corr": _from(1, [a.correlation for a in args]), "context": _from(0, [a.context for a in args]),
        "stream": _from(0, [a.stream for a in args]), "event": _from(0, [a.wait_event for a in args]),
        "src_corr": _from(1, [a.wait_corr for a in args]), "recorded": _from(0, [a.wait_stream for a in args]),
    }


def _memory(events: list[Event]) -> dict[str, Any]:
    args, t = [e.args or _NO_ARGS for e in events], nanoseconds([e.ts for e in events])
    return {
        "t": pa.array(t, mask=t == _NO_TIME), "device": integers([a.device_id for a in args]), "bytes": integers([a.memory_bytes for a in args]),
        "total": integers([a.allocated for a in args]), "address": integers([a.address for a in args]),
    }


def _times(events: list[Event]) -> dict[str, Any]:
    start, lasting = nanoseconds([e.ts for e in events]), nanoseconds([e.dur for e in events])
    known = (start != _NO_TIME) & (lasting != _NO_TIME)
    return {"start": pa.array(start, mask=start == _NO_TIME), "end": pa.array(np.where(known, start + lasting, 0), mask=~known)}


def _names(events: list[Event]) -> pa.DictionaryArray:
    return pa.array([e.name for e in events], pa.string()).dictionary_encode()


def _per_name(values: list[str | None], names: pa.DictionaryArray) -> pa.DictionaryArray:
    return pa.array(values, pa.string()).take(names.indices).dictionary_encode()


def _external(args: list[Args]) -> pa.Array:
    return integers([a.external if a.external is not None else a.external_old for a in args])


def _threads(events: list[Event]) -> pa.Array:
    """Thread ids; names that are no numbers get negative ones."""
    tids: dict[Any, int] = {}
    for tid in sorted({e.tid for e in events}, key=str):
        tids[tid] = int(tid) if isinstance(tid, int) or (isinstance(tid, str) and tid.isdecimal() and len(tid) < 19) else -1 - len(tids)
    return integers([tids[e.tid] for e in events])


def nanoseconds(micros: list[Any]) -> Ints:
    """µs (float or Decimal) → ns, exact to the third decimal; `_NO_TIME` where it does not fit."""
    if micros and not isinstance(micros[0], float):
        return np.array([round(m * 1000) if abs(m) < _LATEST else _NO_TIME for m in micros], dtype=np.int64)
    values = np.array(micros, dtype=np.float64)
    fits = np.abs(values) < _LATEST
    values = np.where(fits, values, 0.0)
    whole = np.floor(values)
    part = np.rint((values - whole) * 1000.0)
    return np.where(fits, whole.astype(np.int64) * 1000 + part.astype(np.int64), _NO_TIME)


def integers(values: list[int | None]) -> pa.Array:
    """int64; null where a value does not fit."""
    try:
        return pa.array(values, pa.int64())
    except (OverflowError, pa.ArrowInvalid):
        return pa.array([v if v is not None and -_LARGEST <= v < _LARGEST else None for v in values], pa.int64())


def _from(least: int, values: list[int | None], unknown: int = 4294967295) -> pa.Array:
    return pa.array([v if v is not None and least <= v < unknown else None for v in values], pa.int64())
