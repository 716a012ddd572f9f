"""Read everything that was given into one store: sort by kind, number the ranks, align the clocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.errors import InputError
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.ingest.detect import DetectorKind, Source, source_of
from gpudoctor.timeline.ingest.merge import merge
from gpudoctor.timeline.store import Store


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How to read. `memory_limit` is DuckDB's, e.g. "4GB"; `progress` is told files done and files in all."""

    memory_limit: str | None = None
    cache: bool = True
    dask: str | None = None
    progress: Callable[[int, int], None] | None = None


@dataclass(slots=True)
class Ingested:
    """A store with canonical and derived tables, and what there is to say about the reading.

    `kinds` are the detector kinds that apply; `problems` are files that could not be read, wholly or to the end.
    """

    store: Store
    kinds: tuple[DetectorKind, ...]
    subject_kind: str
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def ingest(paths: Iterable[Path], options: IngestOptions) -> Ingested:
    """Read files and folders. InputError if nothing could be read; files that could not are told in `problems`."""
    problems: list[str] = []
    found = list(_sources(paths, problems))
    store = Store(options.memory_limit)
    notes = merge(found, store, options, problems)
    if not store.count("capture") and not store.captured:
        raise InputError("; ".join(problems) or "nothing to read")
    derive(store)
    kinds = tuple(dict.fromkeys(k for _, source in found for k in source.kinds))
    return Ingested(store, kinds, "capture" if all(s.is_capture for _, s in found) else "run", notes, problems)


def _sources(paths: Iterable[Path], problems: list[str]) -> Iterator[tuple[Path, Source]]:
    for path in paths:
        try:
            yield path, source_of(path)
        except InputError as error:
            problems.append(str(error))


def natural(path: Path) -> list[object]:
    """A sort key under which rank10 follows rank2."""
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", str(path))]
