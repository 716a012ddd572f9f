"""Worker processes that read Kineto traces into files of columns; light, so that they are started before this process loads its libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock, local

import msgspec

from gpudoctor.cpus import cpus
from gpudoctor.errors import InputError

_ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 28)}
"""A worker takes and frees the same few MiB again and again: kept by one allocator they cost a fifth less time than from the system each time."""


class Request(msgspec.Struct):
    """Read `path` into files in `folder`."""

    path: str
    folder: str


class Answer(msgspec.Struct):
    """Done, or why not."""

    error: str | None = None


class Workers:
    """As many processes as there are CPUs, each begun by the first file that finds no idle one."""

    def __init__(self) -> None:
        self._mine = local()
        self._all: list[subprocess.Popen[bytes]] = []
        self._lock = Lock()
        self._stack = ExitStack()
        self._folder: str | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._count = 0

    def submit(self, path: Path) -> Callable[[], Path]:
        """Begin to read `path`; what is returned waits for the folder of its columns, or raises InputError."""
        if self._pool is None or self._folder is None:
            self._folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpudoctor-", ignore_cleanup_errors=True))
            self._stack.callback(self._end)
            self._pool = ThreadPoolExecutor(cpus())
            self._stack.callback(self._pool.shutdown, wait=False, cancel_futures=True)
        self._count += 1
        return self._pool.submit(self._read, path, Path(self._folder, str(self._count))).result

    def close(self) -> None:
        """End the processes and remove their files."""
        self._stack.close()

    def _read(self, path: Path, folder: Path) -> Path:
        worker = self._worker()
        assert worker.stdin is not None
        assert worker.stdout is not None
        answer = b""
        with suppress(OSError):
            worker.stdin.write(msgspec.json.encode(Request(str(path), str(folder))) + b"\n")
            worker.stdin.flush()
            answer = worker.stdout.readline()
        if not answer:
            del self._mine.worker
            raise InputError(f"{path}: the process that read it ended with status {worker.wait()}; is there enough memory?")
        said = msgspec.json.decode(answer, type=Answer)
        if said.error is not None:
            raise InputError(said.error)
        return folder

    def _worker(self) -> subprocess.Popen[bytes]:
        worker: subprocess.Popen[bytes] | None = getattr(self._mine, "worker", None)
        if worker is None:
            worker = subprocess.Popen([sys.executable, "-m", "gpudoctor.timeline.ingest.worker"], env=os.environ | _ALLOCATOR,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._mine.worker = worker
            with self._lock:
                self._all.append(worker)
        return worker

    def _end(self) -> None:
        for worker in self._all:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()
