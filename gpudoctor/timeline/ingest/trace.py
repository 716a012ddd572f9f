"""What every timeline of one process or host offers, so that several can be put on one clock under one numbering."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from gpudoctor.timeline.store import Store


class Trace(Protocol):
    """One opened timeline."""

    path: Path
    notes: list[str]

    @property
    def stated_rank(self) -> int | None:
        """The rank that the file itself names, if it holds one rank."""

    @property
    def epoch_ns(self) -> int | None:
        """Wall clock at the timeline's zero [ns since 1970]; None if it does not say."""

    def fill(self, store: Store, rank: int, shift_ns: int = 0) -> range:
        """Add everything to the store, its first rank as `rank` and all times shifted; return its ranks."""


class TraceReader(Protocol):
    """A module that reads timelines."""

    def open_trace(self, path: Path) -> AbstractContextManager[Trace]:
        """Open one file; InputError if it cannot be read."""
