"""What a rank tells the watchdog: how far it is, what it is doing, and its latest collectives.

One small file a rank in the private folder: a line of JSON padded to `HEADER` bytes, then a ring of `SLOTS` lines of
`SLOT` bytes, one for each of the latest collectives. A beat costs one `pwrite`; no beat ever raises or waits.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADER, SLOT, SLOTS = 512, 384, 64


class Heart:
    """The writing side; one for each rank process."""

    def __init__(self, folder: Path, rank: int, world_size: int, local_rank: int = -1, attempt: int = 0) -> None:
        self._known: dict[str, Any] = {"rank": rank, "world_size": world_size, "local_rank": local_rank, "attempt": attempt, "pid": os.getpid(), "born": _born(os.getpid())}
        self._doing: dict[str, Any] = {"step": -1, "phase": "", "op": "", "issued": 0, "beats": 0, "state": "running"}
        self._slots: dict[int, dict[str, Any]] = {}
        self._issued: dict[str, int] = {}
        self._fd = -1
        try:
            self._fd = os.open(folder / f"rank{rank}.beat", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.pwrite(self._fd, b" " * (HEADER + SLOT * SLOTS), 0)
        except OSError:
            self.close()
        self._write()

    def step(self, step: int) -> None:
        """Optimizer step `step` is done."""
        self._doing["step"] = step
        self._write()

    def phase(self, name: str) -> None:
        """The rank entered a phase such as forward, backward, data."""
        self._doing["phase"] = name
        self._write()

    def enter(self, op: str, group: str = "", numel: int = -1, dtype: str = "", path: str = "", line: int = -1, func: str = "") -> int:
        """A collective is about to be issued; returns the ticket for `leave`."""
        ticket = self._doing["issued"]
        self._doing["issued"] = ticket + 1
        self._doing["op"] = op
        self._slots[ticket] = {
            "ticket": ticket, "seq": self._issued.get(group, 0), "op": op, "group": group, "numel": numel, "dtype": dtype, "path": path[-120:], "line": line,
            "func": func[-60:], "step": self._doing["step"] + 1, "start": time.time_ns(), "state": "started",
        }
        self._issued[group] = self._issued.get(group, 0) + 1
        self._slot(ticket, self._slots[ticket])
        if len(self._slots) > SLOTS:
            del self._slots[next(iter(self._slots))]
        self._write()
        return int(ticket)

    def leave(self, ticket: int, failed: bool = False) -> None:
        """The collective with that ticket is done on the host, or failed."""
        slot = self._slots.pop(ticket, None)
        if slot is None:
            return
        self._slot(ticket, slot | {"state": "failed" if failed else "completed", "end": time.time_ns()})
        if not self._slots:
            self._doing["op"] = ""
        self._write()

    def note(self, **facts: Any) -> None:
        """Keep short facts about this rank, such as backend and device."""
        self._known |= facts
        self._write()

    def end(self, state: str) -> None:
        """The last beat: done or failed."""
        self._doing["state"] = state
        self._write()

    def close(self) -> None:
        """Stop beating."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _slot(self, ticket: int, record: dict[str, Any]) -> None:
        text = json.dumps(record).encode()
        if len(text) <= SLOT:
            self._put(text.ljust(SLOT), HEADER + SLOT * (ticket % SLOTS))

    def _write(self) -> None:
        self._doing["beats"] += 1
        self._doing["t"] = time.time_ns()
        self._put(json.dumps(self._known | self._doing).encode()[:HEADER].ljust(HEADER), 0)

    def _put(self, data: bytes, offset: int) -> None:
        if self._fd < 0:
            return
        try:
            os.pwrite(self._fd, data, offset)
        except OSError:
            self.close()


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
    """Read a heart's file; None if it is not there or was caught half-written."""
    try:
        data = path.read_bytes()
        head = json.loads(data[:HEADER])
    except (OSError, ValueError):
        return None
    if not isinstance(head, dict) or "rank" not in head or "pid" not in head:
        return None
    slots = []
    for n in range(SLOTS):
        text = data[HEADER + n * SLOT : HEADER + (n + 1) * SLOT].strip()
        if text:
            try:
                slots.append(json.loads(text))
            except ValueError:
                continue
    return Beat(head, sorted(slots, key=lambda s: int(s["ticket"])))


def _born(pid: int) -> str:
    """When a living process started, in the kernel's ticks; empty if there is none, or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in ("Z", "X") else fields[19]
