"""Python stacks of ranks: ask for them by signal, and read what faulthandler wrote."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpudoctor.launch.loops import loop_around
from gpudoctor.launch.processes import send
from gpudoctor.launch.rank import STACK_SIGNAL
from gpudoctor.launch.where import is_users
from gpudoctor.probes.heartbeat import Beat

_THREAD = re.compile(r"(?:Current thread|Thread) (0x[0-9a-f]+)")
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


def frames(folder: Path, tracebacks: Mapping[int, list[dict[str, Any]]], victims: Collection[int]) -> list[dict[str, Any]]:
    """Rows of table stack_frame, thread 0 being the main thread: a rank's traceback, else its last dump.

    A victim's dump was taken when its peer failed and says where it was then; its traceback counts only if it had left the script before it was asked.
    """
    found: dict[int, list[dict[str, Any]]] = {}
    for path in folder.glob("rank*.stacks"):
        with suppress(OSError):
            found[int(path.stem.removeprefix("rank"))] = parse(path.read_text("utf-8", "replace"))
    asked_in_time = {rank for rank in victims if any(f["thread"] == 0 and is_users(f["file"]) for f in found.get(rank, ()))}
    found |= {rank: [{"thread": 0, **frame} for frame in stack] for rank, stack in tracebacks.items() if stack and rank not in asked_in_time}
    return [{"rank": rank, **frame, **_placed(frame)} for rank, stack in sorted(found.items()) for frame in stack]


def _placed(frame: Mapping[str, Any]) -> dict[str, Any]:
    loop = loop_around(frame["file"], frame["line"]) if frame["thread"] == 0 else None
    return {"user": is_users(frame["file"]), **({"loop_line": loop[0], "loop_end": loop[1]} if loop else {})}


def parse(text: str) -> list[dict[str, Any]]:
    """Frames of the last dump in faulthandler's text. A dump ends with the main thread, which becomes thread 0."""
    threads: list[tuple[str, list[dict[str, Any]]]] = []
    for line in text.splitlines():
        if match := _THREAD.match(line):
            threads.append((match[1], []))
        elif (match := _FRAME.match(line)) and threads:
            number = int(match[2]) if match[2].isdigit() else -1
            threads[-1][1].append({"depth": len(threads[-1][1]), "file": match[1], "line": number, "func": match[3]})
    main = [n for n, (name, _) in enumerate(threads) if name == threads[-1][0]]
    latest = threads[main[-2] + 1 :] if len(main) > 1 else threads
    order = latest[-1:] + latest[:-1]
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
