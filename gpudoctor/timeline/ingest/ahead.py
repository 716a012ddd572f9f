"""Kineto traces decoded ahead of their turn: in worker processes, or on a Dask cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.errors import InputError, MissingExtraError, UsageError
from gpudoctor.timeline import digest
from gpudoctor.timeline.ingest.options import CACHE_FOLDER, IngestOptions
from gpudoctor.timeline.ingest.unpack import SQLITE, head_of
from gpudoctor.timeline.ingest.workers import Workers

if TYPE_CHECKING:
    from gpudoctor.timeline.ingest.detect import Item
    from gpudoctor.timeline.ingest.kineto_columns import Extract
    from gpudoctor.timeline.ingest.trace import Trace

WORTH_PROCESSES = 4 << 20
_DASK_TIMEOUT_S = 15


class Ahead:
    """Traces by path, some of them being decoded elsewhere."""

    def __init__(self, options: IngestOptions) -> None:
        self._options = options
        self._coming: dict[Path, Callable[[], Extract]] = {}
        self._stack = ExitStack()
        self._workers = Workers()
        self._stack.callback(self._workers.close)

    def guess(self, arguments: Iterable[Path]) -> None:
        """Begin with what the arguments seem to ask for, before the libraries are loaded that know it; not where a cache may have the answer."""
        with suppress(OSError, InputError):
            arguments = list(arguments)
            if self._options.cache and any(((p if p.is_dir() else p.parent) / CACHE_FOLDER).is_dir() for p in arguments):
                return
            if self._options.cache:
                digest.begin([p for p in arguments if p.is_file() and head_of(p).startswith(SQLITE)])
            if self._options.dask is None:
                self.begin(sorted({f for p in arguments for f in (p.iterdir() if p.is_dir() else (p,)) if _is_trace(f)}, key=natural))

    def begin(self, paths: list[Path]) -> None:
        """Start to decode several traces; a single one, or small ones, are left to be read in their turn."""
        new = [p for p in paths if p not in self._coming]
        if self._options.dask is not None:
            self._on_dask(new, self._options.dask)
        elif len(paths) > 1 and sum(p.stat().st_size for p in paths) >= WORTH_PROCESSES:
            for path in new:
                self._coming[path] = self._in_process(path)

    @contextmanager
    def opened(self, item: Item) -> Iterator[Trace]:
        """The item's trace, once it is there; InputError if it could not be read."""
        if item.path in self._coming:
            from gpudoctor.timeline.ingest.kineto import KinetoTrace

            yield KinetoTrace(self._coming.pop(item.path)())
            return
        with item.source.trace_reader.open_trace(item.path) as trace:
            yield trace

    def close(self) -> None:
        """End what was started."""
        self._stack.close()

    def _in_process(self, path: Path) -> Callable[[], Extract]:
        folder = self._workers.submit(path)

        def extract() -> Extract:
            from gpudoctor.timeline.ingest.worker import load

            return load(path, folder())

        return extract

    def _on_dask(self, paths: list[Path], address: str) -> None:
        from gpudoctor.timeline.ingest.kineto_columns import extract

        try:
            from distributed import Client
        except ImportError:
            raise MissingExtraError("--dask needs the package distributed: pip install 'gpudoctor[dask]'") from None
        try:
            client = self._stack.enter_context(Client(address, timeout=_DASK_TIMEOUT_S))
        except (OSError, ValueError, TimeoutError) as error:
            raise UsageError(f"--dask {address}: no Dask scheduler answers there ({error})") from None
        for path in paths:
            self._coming[path] = client.submit(extract, path.resolve(), pure=False).result


def natural(path: Path) -> list[tuple[bool, int, str]]:
    """A sort key under which rank10 follows rank2."""
    return [(p.isdecimal(), int(p) if p.isdecimal() else 0, p) for p in re.split(r"(\d+)", str(path))]


def _is_trace(path: Path) -> bool:
    from gpudoctor.timeline.ingest.kineto_events import is_trace

    return path.name.endswith((".json", ".json.gz")) and path.is_file() and is_trace(head_of(path))
