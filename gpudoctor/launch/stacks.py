"""Python stacks of ranks: ask for them by signal, and read what faulthandler wrote."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpudoctor.launch.processes import send
from gpudoctor.launch.rank import STACK_SIGNAL
from gpudoctor.probes.heartbeat import Beat

_THREAD = re.compile(r"(Current thread|Thread) (0x[0-9a-f]+)")
_FRAME = re.compile(r'  File "(.*)", line (\d+|\?\?\?) in (.*)')
_FATAL = re.compile(r"Fatal Python error: (.+)")
_SIGNALS = {"Aborted": signal.SIGABRT, "Segmentation fault": signal.SIGSEGV, "Bus error": signal.SIGBUS,
            "Floating-point exception": signal.SIGFPE, "Floating point exception": signal.SIGFPE, "Illegal instruction": signal.SIGILL}


def request(beats: Iterable[Beat], folder: Path, wait_s: float = 2.0) -> None:
    """Ask living ranks for the stacks of all their threads and wait until each wrote them, at most `wait_s`."""
    if STACK_SIGNAL is None:
        return
    asked = {folder / f"rank{b.rank}.stacks": b.pid for b in beats if b.alive()}
    before = {path: _size(path) for path in asked}
    send([pid for path, pid in asked.items() if before[path] >= 0], STACK_SIGNAL)
    until = time.monotonic() + wait_s
    while time.monotonic() < until and any(0 <= before[p] == _size(p) for p in asked):
        time.sleep(0.02)
    time.sleep(0.1)


def frames(folder: Path) -> list[dict[str, Any]]:
    """Rows of table stack_frame: the last dump of each rank, thread 0 being the main thread."""
    rows = []
    for path in sorted(folder.glob("rank*.stacks")):
        rank = int(path.stem.removeprefix("rank"))
        with suppress(OSError):
            rows += [{"rank": rank, **row} for row in parse(path.read_text("utf-8", "replace"))]
    return rows


def parse(text: str) -> list[dict[str, Any]]:
    """Frames of the last dump in faulthandler's text. It ends with the main thread, which becomes thread 0."""
    threads: list[tuple[str, list[dict[str, Any]]]] = []
    for line in text.splitlines():
        if match := _THREAD.match(line):
            if any(name == match[2] for name, _ in threads):
                threads = []
            threads.append((match[2], []))
        elif (match := _FRAME.match(line)) and threads:
            number = int(match[2]) if match[2].isdigit() else -1
            threads[-1][1].append({"depth": len(threads[-1][1]), "file": match[1], "line": number, "func": match[3]})
    order = threads[-1:] + threads[:-1]
    return [{"thread": n, **frame} for n, (_, stack) in enumerate(order) for frame in stack]


def fatal_signal(path: Path) -> int:
    """The signal that faulthandler saw end the process, 0 if it saw none."""
    with suppress(OSError):
        if match := _FATAL.search(path.read_text("utf-8", "replace")):
            return int(_SIGNALS.get(match[1].strip(), 0))
    return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
