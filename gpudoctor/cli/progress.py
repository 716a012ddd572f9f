"""A progress bar on standard error for whatever takes over two seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Any

PATIENCE_S = 2.0


class _Bar:
    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = Lock()
        self._shown: Any = None
        self._task: Any = None
        self._state = (0, 0)
        self._ended = False

    def update(self, done: int, total: int) -> None:
        """Say how far the work is; cheap, and nothing is shown before the patience is over."""
        with self._lock:
            self._state = (done, total)
            if self._shown is not None:
                self._shown.update(self._task, completed=done, total=total if total > 1 else None)

    def show(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        with self._lock:
            if self._ended:
                return
            done, total = self._state
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), *((MofNCompleteColumn(),) if total > 1 else ()), TimeElapsedColumn())
            self._shown = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._shown.add_task(self._what, completed=done, total=total if total > 1 else None)
            self._shown.start()

    def end(self) -> None:
        with self._lock:
            self._ended = True
            if self._shown is not None:
                self._shown.stop()


@contextmanager
def progress(what: str) -> Iterator[_Bar]:
    """Show a bar named `what` after two seconds, if standard error is a terminal; it is gone at the end."""
    bar = _Bar(what)
    timer = Timer(PATIENCE_S, bar.show)
    timer.daemon = True
    if sys.stderr.isatty():
        timer.start()
    try:
        yield bar
    finally:
        timer.cancel()
        bar.end()
