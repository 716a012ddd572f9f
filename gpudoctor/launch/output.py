"""What ranks and launcher print: kept in logs/, rank 0's and every rank's errors shown as they come."""

from __future__ import annotations

import os
import re
import selectors
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpudoctor.rundir import RunDir

_FIFO = re.compile(r"rank(\d+)\.(out|err)")
_PREFIX = re.compile(rb"^\[rank\d+\]: ?")
_ERROR = re.compile(rb"Traceback \(most recent call last\)|\b(?:[A-Z]\w*)?Error\b|\bFATAL\b|Fatal Python error")


@dataclass(slots=True)
class _Source:
    """One pipe: what it is called, where it is kept, and whether it is shown."""

    name: str
    stream: str
    rank: int
    log: BinaryIO | None
    show: bool
    pending: bytes = b""
    in_traceback: bool = False


class Output:
    """Reads every pipe of a run; `show(stream, data)` receives what the user should see (stream is out or err)."""

    def __init__(self, run: RunDir, folder: Path, show: Callable[[str, bytes], None]) -> None:
        self._run, self._folder, self._show = run, folder, show
        self._selector = selectors.DefaultSelector()
        self._logs: dict[str, BinaryIO | None] = {}
        self._sources: dict[str, int] = {}
        self.received = 0
        self.tails: dict[int, bytes] = {}

    def add_launcher(self, stream: str, fd: int, show: bool) -> None:
        """Read the launcher's own stdout or stderr."""
        os.set_blocking(fd, False)
        self._add(fd, _Source("launcher", stream, -1, self._log("launcher"), show))

    def look_for_ranks(self) -> None:
        """Open the pipes of ranks that came up; the reading end is held open for writing too, so that it never ends."""
        with suppress(OSError):
            for name in os.listdir(self._folder):
                match = _FIFO.fullmatch(name)
                if match is None or name in self._sources:
                    continue
                rank, stream = int(match[1]), match[2]
                fd = os.open(self._folder / name, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                self._sources[name] = fd
                self._add(fd, _Source(f"rank{rank}", stream, rank, self._log(f"rank{rank}"), show=rank == 0))

    def pump(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for output and pass it on; False if there was none."""
        events = self._selector.select(timeout)
        got = False
        for key, _ in events:
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if data:
                got = True
                self._take(key.data, data)
            else:
                self._selector.unregister(key.fd)
        return got

    def close(self) -> None:
        """Read what is still in the pipes and close the logs."""
        self.look_for_ranks()
        while self.pump(0):
            pass
        for key in list(self._selector.get_map().values()):
            source: _Source = key.data
            if source.pending:
                self._take(source, b"\n")
        self._selector.close()
        for fd in self._sources.values():
            os.close(fd)
        for log in self._logs.values():
            if log is not None:
                with suppress(OSError):
                    log.close()

    def _add(self, fd: int, source: _Source) -> None:
        self._selector.register(fd, selectors.EVENT_READ, source)

    def _log(self, name: str) -> BinaryIO | None:
        if name not in self._logs:
            try:
                self._logs[name] = open(self._run.logs / f"{name}.txt", "ab", buffering=0)  # noqa: SIM115
            except OSError:
                self._logs[name] = None
        return self._logs[name]

    def _take(self, source: _Source, data: bytes) -> None:
        self.received += len(data)
        if source.log is not None:
            with suppress(OSError):
                source.log.write(data)
        if source.stream == "err":
            self.tails[source.rank] = (self.tails.get(source.rank, b"") + data)[-8192:]
        if source.show:
            self._show(source.stream, data)
        elif source.stream == "err" and source.rank >= 0:
            self._show_errors(source, data)

    def _show_errors(self, source: _Source, data: bytes) -> None:
        lines = (source.pending + data).split(b"\n")
        source.pending = lines.pop()
        for line in lines:
            text = _PREFIX.sub(b"", line)
            if source.in_traceback or _ERROR.search(text):
                self._show("err", b"[rank %d] %s\n" % (source.rank, text))
            source.in_traceback = b"Traceback (" in text or (source.in_traceback and text.startswith(b" "))
