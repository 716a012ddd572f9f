"""Appends records to the rank's file from a thread of its own; memory is bounded and training never waits or breaks."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

FLUSH_S = 0.2
MAX_QUEUED = 20_000
MAX_BYTES = 1 << 30


class Recorder:
    """Writes lines `[table, {column: scalar or list}]` in the order of `add`.

    Each flush is whole lines, so that a kill leaves at most one broken line, the last. When the queue is full records
    are dropped and counted; when the disk is full, or the file has `MAX_BYTES`, recording stops and says so once.
    """

    def __init__(self, path: Path, attempt: int = 0) -> None:
        self.path = path
        self.dropped = 0
        self.stopped = ""
        self._queue: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._written = 0
        self._pid = os.getpid()
        self._fd = -1
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._encoder = msgspec.json.Encoder(enc_hook=str)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if attempt and path.exists():
                path.replace(path.with_name(f"{path.name}.before{attempt}"))
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            self._stop(error)
        self._thread = threading.Thread(target=self._run, name="gpudoctor-recorder", daemon=True)
        self._thread.start()

    def add(self, table: str, columns: Mapping[str, Any]) -> None:
        """Queue one record; cheap, and a no-op once recording has stopped or in a forked child."""
        if self.stopped or self._pid != os.getpid():
            return
        if len(self._queue) >= MAX_QUEUED:
            self.dropped += 1
            return
        self._queue.append((table, columns))

    def flush(self) -> None:
        """Write what is queued now."""
        if self._pid == os.getpid():
            with self._lock:
                self._drain()

    def close(self) -> None:
        """Write the rest and end the thread."""
        if self._pid != os.getpid() or self._fd < 0:
            return
        self._wake.set()
        self._thread.join(5)
        self.flush()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _run(self) -> None:
        while not self._wake.wait(FLUSH_S):
            if self._queue:
                self.flush()

    def _drain(self) -> None:
        lines = bytearray()
        while self._queue:
            record = self._queue.popleft()
            try:
                lines += self._encoder.encode(record) + b"\n"
            except (TypeError, ValueError):
                self.dropped += 1
            if len(lines) > 1 << 20:
                self._write(lines)
                lines = bytearray()
        self._write(lines)

    def _write(self, lines: bytearray) -> None:
        if not lines or self._fd < 0:
            return
        view = memoryview(bytes(lines))
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._stop(error)
            return
        self._written += len(lines)
        if self._written > MAX_BYTES:
            self._stop("its file has reached 1 GiB")

    def _stop(self, reason: object) -> None:
        self.stopped = str(reason) or "unknown"
        self._queue.clear()
        if self._fd >= 0:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = -1
        with suppress(OSError, ValueError):
            print(f"gpudoctor: recording stopped ({self.path}): {reason}; training goes on", file=sys.stderr)
