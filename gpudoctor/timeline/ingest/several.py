"""Read everything that was given into one store, and say how it fits together."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from gpudoctor.errors import InputError
from gpudoctor.timeline.cache import entry_for, inputs
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.ingest.ahead import Ahead, natural
from gpudoctor.timeline.ingest.detect import Item, items_of
from gpudoctor.timeline.ingest.merge import Merge
from gpudoctor.timeline.ingest.options import DetectorKind, Ingested, IngestOptions
from gpudoctor.timeline.ingest.rundir import is_run, read_tables
from gpudoctor.timeline.store import Store

_LIMIT_OF_FILES, _LIMIT_IN_MEMORY = "400MB", "200MB"  # beyond it DuckDB spills
_LARGE = 32 << 20  # bytes of input


def read_all(paths: list[Path], options: IngestOptions, ahead: Ahead) -> Ingested:
    """See `gpudoctor.timeline.ingest.ingest`."""
    problems: list[str] = []
    items = _items(paths, problems)
    entry = entry_for(paths, inputs(i.path for i in items)) if options.cache and any(i.source.is_trace for i in items) else None
    if entry is not None and not problems and (cached := entry.load(options.memory_limit)):
        return cached
    file = entry.temporary if entry else _scratch(items)
    store = Store(options.memory_limit or (_LIMIT_OF_FILES if file else _LIMIT_IN_MEMORY), file=file)
    try:
        read = _read(paths, items, store, options, ahead, problems)
    except BaseException:
        store.close()
        if entry is not None:
            entry.temporary.unlink(missing_ok=True)
        raise
    if entry is not None:
        entry.keep(read, options.memory_limit)
    return read


def _read(paths: list[Path], items: list[Item], store: Store, options: IngestOptions, ahead: Ahead, problems: list[str]) -> Ingested:
    runs = [p for p in paths if is_run(p)]
    merge = Merge(store, options, problems, by_wall_clock=bool(runs))
    merge.read(items, ahead)
    kinds: dict[DetectorKind, None] = dict.fromkeys(k for i in items for k in i.source.kinds)
    for run in runs:
        if not any(i.path.is_relative_to(run / "capture") for i in items) and read_tables(run, store):
            kinds |= dict.fromkeys(("trace", "run", "memory", "log"))
    if not store.captured:
        raise InputError("; ".join(problems) or f"{paths[0]}: nothing in it to read")
    merge.finish()
    derive(store)
    return Ingested(store, tuple(kinds), "run" if runs else "capture", merge.notes, problems)


def _scratch(items: list[Item]) -> Path | None:
    """A file for a large store that is not kept, so that it need not fit into memory; gone with the process. None for a small one."""
    size = 0
    with suppress(OSError):
        size = sum(i.path.stat().st_size for i in items if i.source.is_trace and i.path.is_file())
    if size < _LARGE:
        return None
    folder = tempfile.mkdtemp(prefix="gpudoctor-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder) / "store.duckdb"


def _items(paths: list[Path], problems: list[str]) -> list[Item]:
    items: list[Item] = []
    for path in paths:
        try:
            items += sorted(items_of(path, problems), key=lambda i: (i.source.name != "run", natural(i.path)))
        except InputError as error:
            problems.append(str(error))
    return items
