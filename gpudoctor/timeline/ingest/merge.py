"""Several files → one store: ranks numbered, clocks aligned, duplicates joined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from gpudoctor.errors import GpudoctorError, InputError
from gpudoctor.tables import TABLES
from gpudoctor.timeline.ingest.ahead import Ahead
from gpudoctor.timeline.ingest.detect import Item
from gpudoctor.timeline.ingest.options import IngestOptions
from gpudoctor.timeline.ingest.trace import Trace
from gpudoctor.timeline.store import Store

_OF_TRACES = ("gpu_op", "api", "sync", "event_record", "stream", "nvtx", "cpu_op", "pystack", "gpu_mem")


class Merge:
    """Reads items into a store one after the other.

    With `by_wall_clock` all times become ns since 1970, as probes record them; else those of the first trace stay
    as they are and the others are shifted onto its clock.
    """

    def __init__(self, store: Store, options: IngestOptions, problems: list[str], by_wall_clock: bool) -> None:
        self.store, self.options, self.problems = store, options, problems
        self.notes: list[str] = []
        self._zero: int | None = 0 if by_wall_clock else None
        self._taken: set[int] = set()
        self._shifts: list[int] = []

    def read(self, items: list[Item], ahead: Ahead) -> None:
        """Read them all, those that can be ahead of their turn; what cannot be read is told in `problems`."""
        plain = [i for i in items if not i.source.is_trace]
        traces = [i for i in items if i.source.is_trace]
        for number, item in enumerate(plain):
            self.options.progress(number, len(items))
            self._read_plain(item, number)
        ahead.begin([i.path for i in traces if i.source.name == "kineto"])
        for number, item in enumerate(traces):
            self.options.progress(len(plain) + number, len(items))
            with self._problems_of(item), ahead.opened(item) as trace:
                self._place(trace, item)
        ahead.close()
        self.options.progress(len(items), len(items))

    def _read_plain(self, item: Item, number: int) -> None:
        rank_of = getattr(item.source.reader, "rank_of", None)
        rank = item.rank if item.rank is not None else rank_of(item.path) if rank_of else None
        with self._problems_of(item):
            item.source.reader.read(item.path, rank if rank is not None or item.source.name == "nccl_log" else number, self.store)

    @contextmanager
    def _problems_of(self, item: Item) -> Iterator[None]:
        """Turn whatever a damaged or hostile file provokes into one line, and forget what was read of it."""
        try:
            yield
        except GpudoctorError as error:
            if not isinstance(error, InputError):
                raise
            self._forget(str(error))
        except duckdb.OutOfMemoryException as error:
            self._forget(f"{item.path}: not enough memory ({_first_line(error)}); raise --memory-limit")
        except Exception as error:
            if self.options.debug:
                raise
            self._forget(f"{item.path}: damaged: it cannot be read ({type(error).__name__}: {_first_line(error)})")

    def _forget(self, problem: str) -> None:
        self.problems.append(problem)
        taken = ", ".join(map(str, sorted(self._taken))) or "-1"
        for table in _OF_TRACES:
            self.store.connection.execute(f'DELETE FROM "{table}" WHERE rank NOT IN ({taken})')
        self.store.connection.execute("DROP SCHEMA IF EXISTS stage CASCADE")

    def _place(self, trace: Trace, item: Item) -> None:
        shift = self._shift(trace)
        stated = trace.stated_rank if trace.stated_rank is not None else item.rank
        rank = stated if stated is not None and stated not in self._taken else self._free()
        if stated is not None and rank != stated:
            self.notes.append(f"{trace.path.name} says it is rank {stated}, which another capture is already; it is numbered {rank}")
        ranks = trace.fill(self.store, rank, shift)
        self._taken |= set(ranks)
        self.notes += trace.notes
        if (path := str(trace.path)) in self._truncated():
            self.problems.append(f"{path}: truncated or damaged: its end is missing or unreadable; what comes before it was read")

    def _truncated(self) -> set[str]:
        captures = self.store.table("capture")
        return {path for path, cut in zip(captures["path"].to_pylist(), captures["truncated"].to_pylist(), strict=True) if cut}

    def _free(self) -> int:
        return next(n for n in range(len(self._taken) + 1) if n not in self._taken)

    def _shift(self, trace: Trace) -> int:
        epoch = trace.epoch_ns
        if epoch is None:
            if self._taken:
                self.notes.append(f"{trace.path.name} does not tell the wall clock: its times cannot be compared with other captures'")
            return 0
        if self._zero is None:
            self._zero = epoch
        self._shifts.append(epoch - self._zero)
        return epoch - self._zero

    def finish(self) -> None:
        """Join what several sources say of one rank, and state how clocks were aligned."""
        _one_row_a_rank(self.store)
        if len(self._shifts) > 1:
            how = "no shift" if len(set(self._shifts)) == 1 else f"shifts of up to {max(map(abs, self._shifts)) / 1e9:.3f} s"
            self.notes.append(f"{len(self._shifts)} captures put on one clock by the wall clock of their hosts ({how}); across hosts that is as exact as their clocks agree")


def _one_row_a_rank(store: Store) -> None:
    names = [c.name for c in TABLES["rank_info"].columns if c.name != "rank"]
    picked = ", ".join(f'first("{n}" ORDER BY t_end DESC NULLS LAST) FILTER ("{n}" IS NOT NULL) AS "{n}"' for n in names)
    run = store.connection.execute
    run(f"CREATE TEMP TABLE joined AS SELECT rank, {picked} FROM rank_info GROUP BY rank")
    run("DELETE FROM rank_info")
    run("INSERT INTO rank_info BY NAME SELECT * FROM joined")
    run("DROP TABLE joined")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
