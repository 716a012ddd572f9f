"""What to read and how; what came of it. Light to import: worker processes load it too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gpudoctor.timeline.store import Store

CACHE_FOLDER = ".gpudoctor"
"""Where finished stores are kept, beside the captures."""

DetectorKind = Literal["trace", "run", "memory", "log"]


def _quiet(done: int, total: int) -> None:
    """No progress is shown."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How to read. `memory_limit` is DuckDB's, e.g. "4GB"; `progress` is told files done and files in all.

    With `debug` the exception of a file that cannot be read passes through.
    """

    memory_limit: str | None = None
    cache: bool = True
    dask: str | None = None
    debug: bool = False
    progress: Callable[[int, int], None] = _quiet


@dataclass(slots=True)
class Ingested:
    """A store with canonical and derived tables, and what there is to say about the reading.

    `kinds` are the detector kinds that apply; `subject_kind` is capture or run; `problems` are files that could not
    be read, wholly or to the end.
    """

    store: Store
    kinds: tuple[DetectorKind, ...]
    subject_kind: str
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
