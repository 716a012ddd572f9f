"""Snapshots of PyTorch's caching allocator (`torch.cuda.memory._dump_snapshot`) → mem_block, mem_event, mem_stack."""

from __future__ import annotations

import gc
import gzip
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from gpudoctor.errors import InputError
from gpudoctor.tables import TABLES
from gpudoctor.timeline.ingest.plain_pickle import GONE, PlainUnpickler, Stream
from gpudoctor.timeline.store import Store, arrow_schema

BATCH = 50_000
KEPT_BATCHES = 40
MAX_FRAMES = 64
MAX_STACKS = 1_000_000
MAX_SEEN = 100_000
BYTES_PER_ROW = 8

_STATES = {"active_allocated": "active", "inactive": "inactive", "active_awaiting_free": "pending", "active_pending_free": "pending"}
_RARE = frozenset(("oom", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "snapshot"))


def matches(head: bytes, path: Path) -> bool:
    """True if a file that begins with `head` looks like an allocator snapshot."""
    return head[:1] == b"\x80" and any(key in head for key in (b"segments", b"device_traces", b"segment_type"))


def read(path: Path, rank: int, store: Store) -> None:
    """Add one snapshot to the store, in bounded memory; InputError if it is damaged or holds more than plain data.

    The newest two million events of each device are kept, and every segment and out-of-memory event.
    """
    with _opened(path) as file, _without_gc():
        reader = _Reader(path.name, rank, store)
        unpickler = PlainUnpickler(file, path.name, {"segments": (reader.segments, False), "device_traces": (reader.events, True)}, reader.condense)
        reader.budget = lambda: unpickler.read_bytes // BYTES_PER_ROW
        whole = unpickler.load()
        segments = whole if isinstance(whole, list) else whole.get("segments") if isinstance(whole, dict) else None
        if isinstance(segments, list):
            try:
                reader.segments(0, segments)
            except (TypeError, KeyError, ValueError, IndexError):
                raise InputError(f"{path}: not an allocator snapshot (a list of something else)") from None
        elif not isinstance(segments, Stream):
            raise InputError(f"{path}: not an allocator snapshot (no segments)")
        reader.finish()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            if not packed:
                yield plain
                return
        with gzip.open(path, "rb") as unpacked:
            yield unpacked  # type: ignore[misc]
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


@contextmanager
def _without_gc() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Stack:
    """Stands for a list of frames that has been read before."""

    __slots__ = ("id",)

    def __init__(self, id_: int) -> None:
        self.id = id_


class _Reader:
    """Turns batches of segments and events into rows."""

    def __init__(self, name: str, rank: int, store: Store) -> None:
        self.name, self.rank, self.store = name, rank, store
        self.budget: Callable[[], int] = lambda: 0
        self._rows = 0
        self._stacks: dict[tuple[Any, ...], _Stack] = {}
        self._seen: dict[tuple[int, ...], tuple[_Stack, list[Any]]] = {}
        self._blocks = _Columns("mem_block", rank)
        self._frames = _Columns("mem_stack", rank)
        self._traces: dict[int, _Trace] = {}

    def condense(self, container: Any) -> Any:
        """What the pickle's memo keeps: frames and stacks, which later events share."""
        if type(container) is dict:
            return container if "filename" in container else GONE
        if container and type(container[0]) is dict and "filename" in container[0]:
            return self._stack(container)
        return container if not container else GONE

    def segments(self, _: int, items: list[Any]) -> None:
        for segment in items:
            device, start, stream = segment["device"], segment["address"], segment["stream"]
            pool = "small" if segment.get("segment_type") == "small" else "large"
            address, size = start, segment["total_size"]
            blocks = segment["blocks"]
            self._count(len(blocks))
            for block in blocks:
                address = block.get("address", address)
                self._blocks.add(
                    device, start, size, stream, address, block["size"], block.get("requested_size", block["size"]),
                    _STATES.get(block["state"], "active"), pool, self._stack_id(_frames(block)),
                )
                address += block["size"]
        if len(self._blocks) >= BATCH:
            self._blocks.flush(self.store)

    def events(self, device: int, items: list[Any]) -> None:
        trace = self._traces.get(device)
        if trace is None:
            trace = self._traces[device] = _Trace(self.rank)
        self._count(len(items))
        for event in items:
            action = event["action"]
            trace.add(
                action in _RARE, device, trace.seq, event.get("time_us", 0) * 1000, action, event.get("addr"),
                event["size"], event.get("stream"), event.get("device_free"), self._stack_id(event.get("frames")),
            )

    def finish(self) -> None:
        for table in (self._blocks, self._frames):
            table.flush(self.store)
        self.store.captured |= {"mem_block", "mem_event", "mem_stack"}
        dropped = 0
        for trace in self._traces.values():
            dropped += trace.flush(self.store)
        if dropped:
            self.store.add_rows("fact", [{"rank": self.rank, "kind": "snapshot-events-dropped", "name": self.name, "value": float(dropped), "count": dropped}])

    def _count(self, rows: int) -> None:
        self._rows += rows
        if self._rows > self.budget() + 1000:
            raise InputError(f"{self.name}: refused: it repeats its blocks more often than its size allows")

    def _stack_id(self, frames: Any) -> int | None:
        if type(frames) is _Stack:
            return frames.id
        return self._stack(frames).id if frames else None

    def _stack(self, frames: list[Any]) -> _Stack:
        """The stack of these frames; holding them keeps their identities from being used again."""
        ids = tuple(map(id, frames[:MAX_FRAMES]))
        seen = self._seen.get(ids)
        if seen is not None:
            return seen[0]
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        stack = self._intern(frames)
        self._seen[ids] = stack, frames
        return stack

    def _intern(self, frames: list[Any]) -> _Stack:
        key = tuple([(f["filename"], f["line"], f["name"]) for f in frames[:MAX_FRAMES]])
        known = self._stacks.get(key)
        if known is None:
            known = self._stacks[key] = _Stack(len(self._stacks))
            if known.id >= MAX_STACKS:
                raise InputError(f"{self.name}: refused: more than {MAX_STACKS} different stacks")
            for depth, (file, line, function) in enumerate(key):
                self._frames.add(known.id, depth, int(line), str(file), str(function))
            if len(self._frames) >= BATCH:
                self._frames.flush(self.store)
        return known


def _frames(block: dict[str, Any]) -> Any:
    if "frames" in block:
        return block["frames"]
    history = block.get("history")
    return history[0].get("frames") if history else None


class _Columns:
    """Rows of one table, kept by column; the rank comes first."""

    def __init__(self, table: str, rank: int) -> None:
        self.table, self.rank = table, rank
        self.schema = arrow_schema(TABLES[table])
        self.rows: list[tuple[Any, ...]] = []

    def add(self, *row: Any) -> None:
        self.rows.append(row)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self) -> pa.Table:
        rows, self.rows = self.rows, []
        columns = list(zip(*rows, strict=True)) if rows else [() for _ in self.schema.names[1:]]
        try:
            arrays = [pa.array(c, type=t) for c, t in zip(columns, self.schema.types[1:], strict=False)]
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise InputError(f"damaged snapshot: {error}") from None
        return pa.table([pa.array([self.rank] * len(rows), type=pa.int64()), *arrays], names=self.schema.names[: len(arrays) + 1])

    def flush(self, store: Store) -> None:
        if self.rows:
            store.add(self.table, self.take())


class _Trace:
    """The events of one device: the newest ones, and all the rare ones."""

    def __init__(self, rank: int) -> None:
        self.seq = self.dropped = 0
        self._new = _Columns("mem_event", rank)
        self._batches: deque[pa.Table] = deque()
        self._rare = _Columns("mem_event", rank)

    def add(self, rare: bool, *row: Any) -> None:
        self.seq += 1
        if rare and len(self._rare) < BATCH:
            self._rare.add(*row)
            return
        self._new.add(*row)
        if len(self._new) >= BATCH:
            self._batches.append(self._new.take())
            if len(self._batches) > KEPT_BATCHES:
                self.dropped += len(self._batches.popleft())

    def flush(self, store: Store) -> int:
        """Write what is kept; return how many events were dropped."""
        for batch in (*self._batches, self._new.take(), self._rare.take()):
            if len(batch):
                store.add("mem_event", batch)
        return self.dropped
