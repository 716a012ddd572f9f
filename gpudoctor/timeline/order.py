"""Happens-before between streams: one pass over a process's controls in the order of the host's calls.

What is followed: launch order within a stream, event records and waits (by record where the capture names it, else the
latest record of the event before the wait), host synchronisation by stream, event, device, blocking copies and
`cudaFree`, successful event queries, and the legacy default stream by stream flags. Where a capture does not say what
a wait waits for, everything launched before it counts as waited for: order is then claimed too often, never too rarely.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpudoctor.timeline.clocks import Clocks, Column, Ints
from gpudoctor.timeline.store import Store

Event = tuple[int, int]
"""(context, event), with -1 where the capture has none."""


KERNEL, COMM, MEMCPY, MEMSET = range(4)
OTHER_COPY, H2D, D2H, D2D = range(4)
_STREAM = "coalesce(device, 0) AS device, coalesce(context, -1) AS context, coalesce(stream, -1) AS stream"
_COLUMNS = """launch, launched, start, "end", coalesce(corr, -1) AS corr, coalesce(tid, -1) AS tid, coalesce(step, -1) AS step, name_id,
    CASE kind WHEN 'kernel' THEN 0 WHEN 'comm' THEN 1 WHEN 'memcpy' THEN 2 ELSE 3 END AS kind,
    CASE copy_kind WHEN 'h2d' THEN 1 WHEN 'd2h' THEN 2 WHEN 'd2d' THEN 3 ELSE 0 END AS copy_kind,
    graph IS NOT NULL AS graph, coalesce(src_mem = 'pageable' OR dst_mem = 'pageable', false) AS pageable"""


@dataclass
class Operations:
    """GPU work of one process in launch order; `seq` is the position within the own stream."""

    stream: Ints
    launch: Ints
    end: Ints
    start: Ints
    seq: Ints
    columns: dict[str, Column]
    _by_stream: Ints
    _bounds: Ints

    def of(self, stream: int) -> Ints:
        """Positions of one stream's operations, in launch order."""
        return self._by_stream[self._bounds[stream]:self._bounds[stream + 1]]

    @cached_property
    def launches(self) -> list[Ints]:
        """Per stream, when its operations were launched."""
        return [self.launch[self.of(s)] for s in range(len(self._bounds) - 1)]



@dataclass
class Process:
    """One rank's operations and clocks; `streams` are (device, context, stream), `flags` follow the same index."""

    rank: int
    streams: list[tuple[int, int, int]]
    flags: list[str]
    ops: Operations
    clocks: Clocks

    @cached_property
    def ends(self) -> list[Ints]:
        """Per stream, when its first n + 1 operations had all ended."""
        return [np.maximum.accumulate(self.ops.end[self.ops.of(s)]) for s in range(len(self.streams))]

    def beside(self, a: int, b: int) -> bool:
        """True for two streams of one device."""
        return a != b and self.streams[a][0] == self.streams[b][0]

    def settled(self, a: int, b: int) -> bool:
        """True if stream flags leave no doubt whether the legacy default stream's rule orders `a` and `b`."""
        pair = (self.flags[a], self.flags[b])
        return "nonblocking" in pair or "unknown" not in pair


def read_process(store: Store, rank: int) -> Process | None:
    """Gather one rank's work and follow its controls; None if it has no work whose launch is known."""
    streams = [(r["device"], r["context"], r["stream"]) for r in store.query(
        f"SELECT DISTINCT {_STREAM} FROM op WHERE rank = $rank AND launch IS NOT NULL ORDER BY ALL", {"rank": rank})]
    if not streams:
        return None
    numbered = ", ".join(f"({i}, {d}, {c}, {s})" for i, (d, c, s) in enumerate(streams))
    table = store.connection.execute(
        f"WITH numbered(nth, device, context, stream) AS (VALUES {numbered}), work AS (SELECT {_STREAM}, {_COLUMNS} FROM op WHERE rank = $rank AND launch IS NOT NULL) "
        "SELECT nth, work.* EXCLUDE (context, stream) FROM work JOIN numbered USING (device, context, stream) ORDER BY launch, start, corr, nth", {"rank": rank}).fetchnumpy()
    columns: dict[str, Column] = {name: np.asarray(np.ma.getdata(values)) for name, values in table.items()}
    streams += _idle_streams(store, rank, streams)
    ops = _operations(columns, columns["nth"].astype(np.int64), len(streams))
    process = Process(rank, streams, _flags(store, rank, streams), ops, Clocks(len(streams)))
    controls = list(_controls(store, process))
    _follow(process, controls + list(_legacy_switches(process, controls)))
    return process


def _operations(columns: dict[str, Column], stream: Ints, count: int) -> Operations:
    by_stream = np.argsort(stream, kind="stable")
    bounds = np.searchsorted(stream[by_stream], np.arange(count + 1))
    seq = np.empty(len(stream), dtype=np.int64)
    seq[by_stream] = np.arange(len(stream)) - np.repeat(bounds[:-1], np.diff(bounds))
    return Operations(stream, columns["launch"], columns["end"], columns["start"], seq, columns, by_stream, bounds)


def _idle_streams(store: Store, rank: int, known: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Streams that only record or wait: order can pass through them."""
    rows = store.query(
        "SELECT DISTINCT coalesce(context, -1) AS context, stream FROM (SELECT rank, context, stream FROM event_record UNION ALL "
        "SELECT rank, context, stream FROM sync WHERE kind = 'stream_wait_event') WHERE rank = $rank AND stream IS NOT NULL ORDER BY ALL", {"rank": rank})
    exact, loose = {(c, s) for _, c, s in known}, {s for _, _, s in known}
    return [(-1, r["context"], r["stream"]) for r in rows
            if (r["context"], r["stream"]) not in exact and not (r["context"] == -1 and r["stream"] in loose)]


def _flags(store: Store, rank: int, streams: list[tuple[int, int, int]]) -> list[str]:
    rows = store.query('SELECT coalesce(context, -1) AS context, stream, any_value(flags) AS flags FROM "stream" WHERE rank = $rank GROUP BY ALL', {"rank": rank})
    exact = {(r["context"], r["stream"]): r["flags"] for r in rows}
    loose = {r["stream"]: r["flags"] for r in rows}
    flags = [exact.get((c, s)) or loose.get(s) or "unknown" for _, c, s in streams]
    if "default" not in flags:
        flags = ["default" if s in (0, 7) and f == "unknown" else f for f, (_, _, s) in zip(flags, streams, strict=True)]
    return flags


@dataclass(slots=True)
class _Control:
    """One call that orders work. `kind`: record, wait, event, stream, device, query, legacy."""

    time: int
    kind: str
    streams: list[int]
    event: Event = (-1, -1)
    event_sync: int = -1
    corr: int = -1
    others: Ints | None = None
    started: int = 0

    def key(self) -> tuple[int, int, int]:
        return (self.time, ("event", "stream", "device", "query", "legacy", "record", "wait").index(self.kind), self.corr)


class _Lookup:
    """From a capture's (context, stream) to stream indices; a missing context matches every one."""

    def __init__(self, streams: list[tuple[int, int, int]]) -> None:
        self._exact: dict[tuple[int, int], list[int]] = {}
        self._loose: dict[int, list[int]] = {}
        self._context: dict[int, list[int]] = {}
        for i, (_, context, stream) in enumerate(streams):
            self._exact.setdefault((context, stream), []).append(i)
            self._loose.setdefault(stream, []).append(i)
            self._context.setdefault(context, []).append(i)
        self._all = list(range(len(streams)))

    def stream(self, context: int | None, stream: int | None) -> list[int]:
        if stream is None or stream < 0:
            return self.device(context)
        return self._exact.get((-1 if context is None else context, stream)) or self._loose.get(stream, [])

    def device(self, context: int | None) -> list[int]:
        return self._all if context is None else self._context.get(context, self._all)


def _controls(store: Store, process: Process) -> Iterator[_Control]:
    look, rank = _Lookup(process.streams), {"rank": process.rank}
    for r in store.query("SELECT e.context, e.stream, e.event, e.event_sync, e.corr, coalesce(a.start, e.start) AS t FROM event_record e "
                         "LEFT JOIN launch_call a ON a.rank = e.rank AND a.corr = e.corr WHERE e.rank = $rank AND coalesce(a.start, e.start) IS NOT NULL", rank):
        yield _Control(r["t"], "record", [] if r["stream"] is None else look.stream(r["context"], r["stream"])[:1], _event(r), _id(r["event_sync"]), _id(r["corr"]))
    for r in store.query('SELECT s.kind, s.context, s.stream, s.event, s.event_sync, s.src_corr, s.start, s."end", a.start AS called FROM sync s '
                         "LEFT JOIN launch_call a ON a.rank = s.rank AND a.corr = s.corr WHERE s.rank = $rank AND s.start IS NOT NULL", rank):
        kind = {"stream_wait_event": "wait", "event_query": "query"}.get(r["kind"], r["kind"])
        streams = look.device(r["context"]) if kind == "device" else look.stream(r["context"], r["stream"])
        time = (r["start"] if r["called"] is None else r["called"]) if kind == "wait" else r["end"]
        yield _Control(time, kind, streams, _event(r), _id(r["event_sync"]), _id(r["src_corr"]), started=r["start"])
    for r in store.query("SELECT c.kind, c.\"end\" FROM host_call c WHERE c.rank = $rank AND c.kind = 'free' AND c.\"end\" IS NOT NULL", rank):
        yield _Control(r["end"], "device", look.device(None), started=r["end"])
    yield from _blocking_copies(store, process)


def _event(row: dict[str, Any]) -> Event:
    return (_id(row["context"]), _id(row["event"]))


def _id(value: int | None) -> int:
    return -1 if value is None or value < 0 or value == 0xFFFFFFFF else int(value)


def _blocking_copies(store: Store, process: Process) -> Iterator[_Control]:
    """Copies that the host waited for: blocking calls, and asynchronous ones of pageable memory that ended within the call."""
    blocking = {r["corr"] for r in store.query("SELECT corr FROM host_call WHERE rank = $rank AND kind = 'memcpy'", {"rank": process.rank})}
    ops, columns = process.ops, process.ops.columns
    copies = np.flatnonzero((columns["kind"] == MEMCPY) & (columns["copy_kind"] != D2D))
    for i in copies.tolist():
        if int(columns["corr"][i]) in blocking or (columns["pageable"][i] and ops.end[i] <= columns["launched"][i]):
            yield _Control(int(columns["launched"][i]), "stream", [int(ops.stream[i])], started=int(ops.launch[i]))


def _legacy_switches(process: Process, controls: list[_Control]) -> Iterator[_Control]:
    """Where work, records or waits pass between the legacy default stream and blocking streams of one context."""
    ops = process.ops
    marks = [(c.time, s) for c in controls if c.kind in ("record", "wait") for s in c.streams]
    time = np.concatenate([ops.launch, np.array([t for t, _ in marks], dtype=np.int64)])
    stream = np.concatenate([ops.stream, np.array([s for _, s in marks], dtype=np.int64)])
    for legacy in [i for i, f in enumerate(process.flags) if f == "default"]:
        context = process.streams[legacy][1]
        blocking = np.array([i for i, f in enumerate(process.flags) if f == "blocking" and process.streams[i][1] == context], dtype=np.int64)
        if not len(blocking):
            continue
        at = np.flatnonzero((stream == legacy) | np.isin(stream, blocking))
        at = at[np.lexsort((stream[at], time[at]))]
        on_legacy = stream[at] == legacy
        for i in at[on_legacy & np.r_[True, ~on_legacy[:-1]]].tolist():
            yield _Control(int(time[i]), "legacy", [legacy], others=blocking)
        last_legacy = np.maximum.accumulate(np.where(on_legacy, np.arange(len(at)), -1))
        for other in blocking.tolist():
            mine = np.flatnonzero(stream[at] == other)
            before = np.r_[-1, mine[:-1]]
            for i in at[mine[last_legacy[mine] > before]].tolist():
                yield _Control(int(time[i]), "legacy", [other], others=np.array([legacy]))


def _follow(process: Process, controls: list[_Control]) -> None:
    """Run the clocks over all controls."""
    controls.sort(key=_Control.key)
    ops, clocks = process.ops, process.clocks
    # A launch counts for a control if it came first; a synchronisation counts what was launched before it was called.
    marks = np.array([c.started if c.kind in ("stream", "device", "query", "event") else c.time for c in controls], dtype=np.int64)
    reached = np.searchsorted(ops.launch, np.array([c.time for c in controls], dtype=np.int64), side="left")
    by_corr: dict[int, _Record] = {}
    by_sync: dict[int, _Record] = {}
    by_event: dict[Event, _Record] = {}
    done = 0
    for control, upto, mark in zip(controls, reached.tolist(), marks.tolist(), strict=True):
        if upto > done:
            clocks.launch(ops.stream[done:upto])
            done = upto
        if control.kind == "record":
            record = _Record(clocks.snapshot(control.streams[0]), control.streams[0]) if control.streams else _Record(clocks.counts.copy(), None)
            if control.corr >= 0:
                by_corr[control.corr] = record
            if control.event_sync >= 0:
                by_sync[control.event_sync] = record
            if control.event[1] >= 0:
                by_event[control.event] = record
        elif control.kind in ("wait", "event", "query"):
            record_ = by_corr.get(control.corr) or by_sync.get(control.event_sync) or by_event.get(control.event)
            _apply_event(process, control, record_)
        elif control.kind == "legacy":
            clocks.legacy(control.streams[0], control.others if control.others is not None else np.zeros(0, dtype=np.int64), control.time)
        else:
            for stream in control.streams:
                clocks.host_waits(_before(process, stream, clocks.snapshot(stream), mark), control.time)
    clocks.launch(ops.stream[done:])


@dataclass(slots=True)
class _Record:
    seen: Ints
    stream: int | None


def _before(process: Process, stream: int, seen: Ints, mark: int) -> Ints:
    """Take back what other threads launched into `stream` while the host was already waiting for it."""
    seen[stream] = min(int(seen[stream]), int(np.searchsorted(process.ops.launches[stream], mark, side="right")))
    return seen


def _apply_event(process: Process, control: _Control, record: _Record | None) -> None:
    clocks = process.clocks
    if control.kind == "wait":
        for stream in control.streams:
            clocks.wait(stream, clocks.counts if record is None else record.seen, control.time, None if record is None else record.stream)
    elif record is None:
        clocks.host_waits(_ended(process, control.time), control.time)
    elif control.kind == "event" or _is_done(process, record, control.time):
        clocks.host_waits(record.seen, control.time)


def _ended(process: Process, time: int) -> Ints:
    """What had ended on the GPU by then, for waits whose event is unknown."""
    done = np.array([np.searchsorted(ends, time, side="right") for ends in process.ends], dtype=np.int64)
    return np.minimum(done, process.clocks.counts)


def _is_done(process: Process, record: _Record, time: int) -> bool:
    """A query's row does not say whether the event was ready; what the GPU did says so."""
    if record.stream is None:
        return False
    count = int(record.seen[record.stream])
    return count == 0 or bool(process.ends[record.stream][count - 1] <= time)
