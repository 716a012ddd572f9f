"""What a rank tells the watchdog: how far it is, what it is doing, and its latest collectives.

One small file a rank in the private folder, mapped into memory: a header, then a ring of the latest collectives. A beat
is a few stores, about a microsecond; it makes no call into the system, and never raises or waits.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What is known from the start, as JSON; then the doing: beats, time, step, issued; phase, op, state.
_KNOWN = 512
_DOING = struct.Struct("<4q24s32s16s")
# One collective: ticket + 1 (0: empty), seq, numel, step, start, line; op, group, dtype, path, func; end, state.
_CALL = struct.Struct("<6q32s40s16s160s64s")
_RETURN = struct.Struct("<qq")
_STATES = ("started", "completed", "failed")
SLOTS = 64
_RING = _KNOWN + _DOING.size + (-_DOING.size) % 8
_SLOT = _CALL.size + _RETURN.size
SIZE = _RING + SLOTS * _SLOT


class Heart:
    """The writing side; one for each rank process."""

    def __init__(self, folder: Path, rank: int, world_size: int, local_rank: int = -1, attempt: int = 0) -> None:
        self._known: dict[str, Any] = {"rank": rank, "world_size": world_size, "local_rank": local_rank, "attempt": attempt, "pid": os.getpid(), "born": _born(os.getpid())}
        self._beats = self._issued = 0
        self._step = -1
        self._phase = self._op = b""
        self._state = b"running"
        self._by_group: dict[str, int] = {}
        self._open: dict[int, None] = {}
        self._map: mmap.mmap | None = None
        try:
            self._map = _mapped(folder / f"rank{rank}.beat")
        except (OSError, ValueError):
            return
        self.note()

    def step(self, step: int) -> None:
        """Optimizer step `step` is done."""
        self._step = step
        self._write()

    def phase(self, name: str) -> None:
        """The rank entered a phase such as forward, backward, data."""
        self._phase = name.encode()
        self._write()

    def enter(self, op: str, group: str = "", numel: int = -1, dtype: str = "", path: str = "", line: int = -1, func: str = "") -> int:
        """A collective is about to be issued; returns the ticket for `leave`."""
        ticket, seq = self._issued, self._by_group.get(group, 0)
        self._issued = ticket + 1
        self._by_group[group] = seq + 1
        self._op = op.encode()
        self._open[ticket] = None
        if self._map is not None:
            _CALL.pack_into(self._map, _place(ticket), ticket + 1, seq, numel, self._step + 1, time.time_ns(), line,
                            self._op, group.encode(), dtype.encode(), path.encode()[-160:], func.encode()[:64])
            _RETURN.pack_into(self._map, _place(ticket) + _CALL.size, 0, 0)
        self._write()
        return ticket

    def leave(self, ticket: int, failed: bool = False) -> None:
        """The collective with that ticket is done on the host, or failed: then it stays named as what the rank was doing."""
        if ticket not in self._open:
            return
        del self._open[ticket]
        if self._map is not None and ticket > self._issued - 1 - SLOTS:
            _RETURN.pack_into(self._map, _place(ticket) + _CALL.size, time.time_ns(), 2 if failed else 1)
        if not self._open and not failed:
            self._op = b""
        self._write()

    def note(self, **facts: Any) -> None:
        """Keep short facts about this rank, such as backend and device."""
        self._known |= facts
        text = json.dumps(self._known).encode()
        if self._map is not None and len(text) <= _KNOWN:
            self._map[:_KNOWN] = text.ljust(_KNOWN)
        self._write()

    def end(self, state: str) -> None:
        """The last beat: done or failed."""
        self._state = state.encode()
        self._write()

    def _write(self) -> None:
        self._beats += 1
        if self._map is not None:
            _DOING.pack_into(self._map, _KNOWN, self._beats, time.time_ns(), self._step, self._issued, self._phase, self._op, self._state)


_heart: Heart | None = None


def start(folder: Path, rank: int, world_size: int, local_rank: int = -1, attempt: int = 0) -> None:
    """Begin to beat in this process."""
    global _heart
    _heart = Heart(folder, rank, world_size, local_rank, attempt)


def heart() -> Heart | None:
    """This process's heart, None outside a watched rank."""
    return _heart


def step(number: int) -> None:
    """Tell that optimizer step `number` is done."""
    if _heart is not None:
        _heart.step(number)


def phase(name: str) -> None:
    """Tell which phase begins."""
    if _heart is not None:
        _heart.phase(name)


def enter(op: str, group: str = "", numel: int = -1, dtype: str = "", path: str = "", line: int = -1, func: str = "") -> int:
    """Tell that a collective is about to be issued; returns its ticket, -1 if nobody listens."""
    return -1 if _heart is None else _heart.enter(op, group, numel, dtype, path, line, func)


def leave(ticket: int, failed: bool = False) -> None:
    """Tell that a collective is done, or failed."""
    if _heart is not None and ticket >= 0:
        _heart.leave(ticket, failed)


def note(**facts: Any) -> None:
    """Keep short facts about this rank, such as backend and device."""
    if _heart is not None:
        _heart.note(**facts)


@dataclass(frozen=True, slots=True)
class Beat:
    """A heart as the watchdog reads it: the header, and the latest collectives in order of issue."""

    head: dict[str, Any]
    collectives: list[dict[str, Any]]

    @property
    def rank(self) -> int:
        return int(self.head["rank"])

    @property
    def pid(self) -> int:
        return int(self.head["pid"])

    def alive(self) -> bool:
        """True if the very process that wrote this is there and no zombie."""
        born = _born(self.pid)
        return born == self.head.get("born", born) and born != ""


def read(path: Path) -> Beat | None:
    """Read a heart's file; None if it is not there, or not begun yet."""
    try:
        data = path.read_bytes()
        head = json.loads(data[:_KNOWN])
        beats, t, step, issued, phase, op, state = _DOING.unpack_from(data, _KNOWN)
        calls = [c for n in range(SLOTS) if (c := _call(data, _RING + n * _SLOT)) is not None]
    except (OSError, ValueError, struct.error):
        return None
    if not isinstance(head, dict) or "rank" not in head or "pid" not in head:
        return None
    head |= {"beats": beats, "t": t, "step": step, "issued": issued, "phase": _text(phase), "op": _text(op), "state": _text(state)}
    return Beat(head, sorted(calls, key=lambda c: int(c["ticket"])))


def _call(data: bytes, offset: int) -> dict[str, Any] | None:
    number, seq, numel, step, begun, line, op, group, dtype, path, func = _CALL.unpack_from(data, offset)
    end, state = _RETURN.unpack_from(data, offset + _CALL.size)
    if not number:
        return None
    call = {"ticket": number - 1, "seq": seq, "op": _text(op), "group": _text(group), "numel": numel, "dtype": _text(dtype), "step": step, "start": begun, "state": _STATES[state]}
    if path.strip(b"\0"):
        call |= {"path": _text(path), "line": line, "func": _text(func)}
    return call | ({"end": end} if end else {})


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("utf-8", "replace")


def _place(ticket: int) -> int:
    return _RING + _SLOT * (ticket % SLOTS)


def _mapped(path: Path) -> mmap.mmap:
    """The file, written once in full so that its memory is there to stay, and mapped."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.pwrite(fd, bytes(SIZE), 0) != SIZE:
            raise OSError("no room")
        return mmap.mmap(fd, SIZE)
    finally:
        os.close(fd)


def _born(pid: int) -> str:
    """When a living process started, in the kernel's ticks; empty if there is none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
