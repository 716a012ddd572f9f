"""Processes of a run: which belong to it, what they consume, and how they are ended in bounded time."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def descendants(roots: Iterable[int]) -> set[int]:
    """The given processes and all that they started and that still hang on them."""
    children: dict[int, list[int]] = defaultdict(list)
    with suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (fields := _stat(int(name))):
                children[int(fields[1])].append(int(name))
    found: set[int] = set()
    queue = list(roots)
    while queue:
        pid = queue.pop()
        if pid not in found:
            found.add(pid)
            queue += children[pid]
    return found


def alive(pid: int) -> bool:
    """True if the process is there and no zombie."""
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def work_done(pids: Iterable[int]) -> tuple[float, int]:
    """CPU seconds used and bytes read or written so far, over all `pids`."""
    seconds, moved = 0.0, 0
    tick = os.sysconf("SC_CLK_TCK")
    for pid in pids:
        if fields := _stat(pid):
            seconds += (int(fields[11]) + int(fields[12])) / tick
        with suppress(OSError, ValueError, IndexError):
            for line in Path(f"/proc/{pid}/io").read_text("ascii").splitlines():
                if line.startswith(("rchar", "wchar")):
                    moved += int(line.split()[1])
    return seconds, moved


def send(pids: Iterable[int], signum: int) -> None:
    """Send a signal to each of `pids` that is still there."""
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signum)


def end(pids: set[int], grace_s: float) -> None:
    """End `pids`: SIGTERM, then SIGKILL for those still there after `grace_s`."""
    send(pids, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while time.monotonic() < until and any(alive(p) for p in pids):
        time.sleep(0.05)
    send([p for p in pids if alive(p)], signal.SIGKILL)


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, ppid, …; empty if the process is gone."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    return []
