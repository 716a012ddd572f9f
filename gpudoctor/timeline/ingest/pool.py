"""Kineto traces decoded ahead of their turn: in worker processes, or on a Dask cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock, local

import msgspec

from gpudoctor.errors import InputError, MissingExtraError, UsageError
from gpudoctor.timeline.ingest.detect import Item
from gpudoctor.timeline.ingest.kineto import KinetoTrace
from gpudoctor.timeline.ingest.kineto_columns import Extract, extract
from gpudoctor.timeline.ingest.options import IngestOptions
from gpudoctor.timeline.ingest.trace import Trace
from gpudoctor.timeline.ingest.worker import Answer, Request, load

WORTH_PROCESSES = 4 << 20
_DASK_TIMEOUT_S = 15
_ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_TRIM_THRESHOLD_": str(1 << 28), "MALLOC_MMAP_THRESHOLD_": str(1 << 28)}
"""A worker takes and frees the same few MiB again and again: kept by one allocator they cost a fifth less time than from the system each time."""


class Ahead:
    """Traces by path, some of them being decoded elsewhere."""

    def __init__(self) -> None:
        self._coming: dict[Path, Callable[[], Extract]] = {}
        self._stack = ExitStack()

    @contextmanager
    def opened(self, item: Item) -> Iterator[Trace]:
        """The item's trace, once it is there; InputError if it could not be read."""
        if item.path in self._coming:
            yield KinetoTrace(self._coming.pop(item.path)())
            return
        with item.source.trace_reader.open_trace(item.path) as trace:
            yield trace

    def close(self) -> None:
        """End what was started."""
        self._stack.close()


def read_ahead(paths: list[Path], options: IngestOptions) -> Ahead:
    """Start to decode several traces; a single one, or small ones, are left to be read in their turn."""
    ahead = Ahead()
    if options.dask is not None:
        _on_dask(ahead, paths, options.dask)
    elif len(paths) > 1 and sum(p.stat().st_size for p in paths) >= WORTH_PROCESSES:
        _in_processes(ahead, paths)
    return ahead


def _in_processes(ahead: Ahead, paths: list[Path]) -> None:
    folder = ahead._stack.enter_context(tempfile.TemporaryDirectory(prefix="gpudoctor-", ignore_cleanup_errors=True))
    workers = _Workers()
    ahead._stack.callback(workers.close)
    pool = ThreadPoolExecutor(min(_cpus(), len(paths)))
    ahead._stack.callback(pool.shutdown, wait=False, cancel_futures=True)
    for number, path in enumerate(paths):
        future = pool.submit(workers.read, path, Path(folder, str(number)))
        ahead._coming[path] = future.result


def _on_dask(ahead: Ahead, paths: list[Path], address: str) -> None:
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError("--dask needs the package distributed: pip install 'gpudoctor[dask]'") from None
    try:
        client = ahead._stack.enter_context(Client(address, timeout=_DASK_TIMEOUT_S))
    except (OSError, ValueError, TimeoutError) as error:
        raise UsageError(f"--dask {address}: no Dask scheduler answers there ({error})") from None
    for path in paths:
        ahead._coming[path] = client.submit(extract, path.resolve(), pure=False).result


class _Workers:
    """One worker process for each thread that asks."""

    def __init__(self) -> None:
        self._mine = local()
        self._all: list[subprocess.Popen[bytes]] = []
        self._lock = Lock()

    def read(self, path: Path, folder: Path) -> Extract:
        """Have a worker read `path`; its columns come back through files in `folder`."""
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
        return load(path, folder)

    def _worker(self) -> subprocess.Popen[bytes]:
        worker: subprocess.Popen[bytes] | None = getattr(self._mine, "worker", None)
        if worker is None:
            worker = subprocess.Popen([sys.executable, "-m", "gpudoctor.timeline.ingest.worker"], env=os.environ | _ALLOCATOR,
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._mine.worker = worker
            with self._lock:
                self._all.append(worker)
        return worker

    def close(self) -> None:
        for worker in self._all:
            worker.kill()
            worker.wait()
            for pipe in (worker.stdin, worker.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
