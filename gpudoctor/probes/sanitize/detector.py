"""The detector proper: it is told of launches, waits and allocations, and finds accesses that nothing orders.

It knows neither torch nor CUDA, so that it can be tested with made-up events. Streams, events and addresses are integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gpudoctor.probes.sanitize.clocks import Clocks, Stream
from gpudoctor.probes.sanitize.races import Access, Race, Races, Site
from gpudoctor.probes.sanitize.ranges import Shape, meet

Span = tuple[int, int, Shape | None]
"""First byte, end, and the exact shape where the range has gaps."""

Mark = tuple[int, str, Site, int]
"""Position on its stream, operator, place in the code, order of issue: an access as it is kept."""

Table = dict[Span, Mark]
"""Latest access by range, in the order of these accesses."""

MAX_SPANS = 50_000

MISSING_WAIT, WRONG_ORDER, MISSING_RECORD = "stream-missing-wait", "stream-wrong-order", "missing-record-stream"
EARLY_READ, PINNED_REUSED = "d2h-nonblocking-no-sync", "pinned-buffer-reused"


class Detector:
    """Feed it in the host's order; `races` holds what it found.

    `unsure` are streams of whose order with the others something may be unknown; `base_of(address)` is the first byte
    of the allocation that an address of the latest launch lies in.
    """

    def __init__(self) -> None:
        self.clocks = Clocks()
        self.races = Races()
        self.step = 0
        self.order = 0
        self.unsure: set[Stream] = set()
        self.base_of: Callable[[int], int] = lambda address: address
        self._reads: dict[Stream, Table] = {}
        self._writes: dict[Stream, Table] = {}
        self._host_reads: dict[Stream, Table] = {}
        self._host_writes: dict[Stream, Table] = {}
        self._allocated: dict[int, int] = {}
        self._recorded: dict[tuple[int, int, Stream], None] = {}

    def launch(self, stream: Stream, op: str, reads: Sequence[Span], writes: Sequence[Span], site: Site) -> None:
        """An operation on `stream` touches device memory."""
        self.order += 1
        positions = self.clocks.position
        positions[stream] = position = positions.get(stream, 0) + 1
        self.touch(stream, position, op, reads, writes, site)

    def touch(self, stream: Stream, position: int, op: str, reads: Sequence[Span], writes: Sequence[Span], site: Site) -> None:
        """Like `launch`, for an operation that has its position already."""
        mark = position, op, site, self.order
        if len(self.clocks.position) > 1:
            self._search(stream, reads, writes, mark)
        if reads:
            _note(self._reads, stream, reads, mark)
        if writes:
            _note(self._writes, stream, writes, mark)

    def copies_host(self, stream: Stream, span: Span, op: str, writes: bool, site: Site) -> None:
        """The last launch on `stream` reads or writes pinned host memory."""
        mark = self.clocks.position.get(stream, 0), op, site, self.order
        _note(self._host_writes if writes else self._host_reads, stream, (span,), mark)

    def forget_host(self, span: Span) -> None:
        """The pinned memory is gone; whoever is given it next was made to wait by its allocator."""
        for tables in (self._host_reads, self._host_writes):
            for table in tables.values():
                table.pop(span, None)

    @property
    def host_is_shared(self) -> bool:
        """True while some copy to or from pinned memory may be in flight."""
        host = self.clocks.host
        return any(
            table and next(reversed(table.values()))[0] > host.get(stream, 0)
            for tables in (self._host_reads, self._host_writes)
            for stream, table in tables.items()
        )

    def in_flight(self, span: Span, writes: bool) -> Access | None:
        """The latest copy in flight that an access of the host to `span` would race with."""
        for tables in (self._host_writes, self._host_reads) if writes else (self._host_writes,):
            for stream, table in tables.items():
                found = _latest(table, span, self.clocks.host.get(stream, 0))
                if found is not None:
                    return _access(stream, tables is self._host_writes, found[0])
        return None

    def host_raced(self, first: Access, span: Span, op: str, writes: bool, site: Site, sure: bool = True) -> None:
        """Report an access of the host that came before copy `first` was known to be done."""
        kind = EARLY_READ if first.writes and not writes else PINNED_REUSED
        self.races.add(Race(kind, first, Access(None, 0, op, writes, site, self.order), span[1] - span[0], sure, self.step))

    def is_done(self, access: Access) -> bool:
        """True if the host has waited for this access."""
        return access.stream is not None and access.position <= self.clocks.host.get(access.stream, 0)

    def allocated(self, bases: Iterable[int]) -> None:
        """The caching allocator has handed out blocks that begin at `bases`."""
        self._allocated.update(dict.fromkeys(bases, self.order))

    def record_stream(self, start: int, end: int, stream: Stream) -> None:
        """The allocator will not hand out these bytes again before what `stream` does with them is done."""
        self._recorded.pop((start, end, stream), None)
        self._recorded[start, end, stream] = None
        if len(self._recorded) > MAX_SPANS:
            self._recorded = dict.fromkeys(list(self._recorded)[MAX_SPANS // 2:])

    def all_is_done(self) -> None:
        """The host has waited for everything: start afresh."""
        self.clocks.host_waits_for_all()
        for tables in (self._reads, self._writes, self._host_reads, self._host_writes):
            tables.clear()
        self._recorded.clear()

    def _search(self, stream: Stream, reads: Sequence[Span], writes: Sequence[Span], mark: Mark) -> None:
        clocks = self.clocks
        for other, position in clocks.position.items():
            if other == stream:
                continue
            done = clocks.finished(other, stream)
            if position <= done:
                continue
            written, read = self._writes.get(other), self._reads.get(other)
            if written and next(reversed(written.values()))[0] > done:
                self._match(written, reads, done, (stream, False, mark), (other, True))
                self._match(written, writes, done, (stream, True, mark), (other, True))
            if writes and read and next(reversed(read.values()))[0] > done:
                self._match(read, writes, done, (stream, True, mark), (other, False))

    def _match(self, table: Table, spans: Sequence[Span], done: int, now: tuple[Stream, bool, Mark], then: tuple[Stream, bool]) -> None:
        for span in spans:
            found = _latest(table, span, done)
            if found is not None:
                self._judge(span, _access(*now), _access(*then, found[0]), found[1], found[2])

    def _judge(self, span: Span, access: Access, before: Access, span_b: Span, exact: bool) -> None:
        stream, other = access.stream, before.stream
        assert stream is not None
        assert other is not None
        kind = MISSING_WAIT
        if self._allocated.get(self.base_of(span[0]), -1) >= before.order:
            if before.in_backward or self._kept_back(span_b, other):
                return
            kind = MISSING_RECORD
        elif self.clocks.waited_since(stream, other, before.order):
            kind = WRONG_ORDER
        sure = exact and not self.unsure & {stream, other}
        self.races.add(Race(kind, before, access, min(span[1], span_b[1]) - max(span[0], span_b[0]), sure, self.step))

    def _kept_back(self, span: Span, stream: Stream) -> bool:
        """True if the allocator was told that `stream` uses memory around `span`."""
        return any(s == stream and a < span[1] and span[0] < b for a, b, s in self._recorded)


def _access(stream: Stream, writes: bool, mark: Mark) -> Access:
    position, op, site, order = mark
    return Access(stream, position, op, writes, site, order)


def _latest(table: Table, span: Span, done: int) -> tuple[Mark, Span, bool] | None:
    """The latest unfinished access that meets `span`, its range, and whether that is certain."""
    start, end, _ = span
    for other, mark in reversed(table.items()):
        if mark[0] <= done:
            return None
        if other[0] < end and start < other[1]:
            meets = _overlap(span, other)
            if meets is not False:
                return mark, other, meets is True
    return None


def _note(tables: dict[Stream, Table], stream: Stream, spans: Sequence[Span], mark: Mark) -> None:
    table = tables.get(stream)
    if table is None:
        table = tables[stream] = {}
    for span in spans:
        if span in table:
            del table[span]
        table[span] = mark
    if len(table) > MAX_SPANS:
        kept = list(table.items())[len(table) // 2:]
        table.clear()
        table.update(kept)


def _overlap(a: Span, b: Span) -> bool | None:
    """Do two ranges share a byte? None where that cannot be told."""
    if a[2] is None and b[2] is None:
        return True
    return meet(a[2] or _flat(a), b[2] or _flat(b))


def _flat(span: Span) -> Shape:
    return span[0], (span[1] - span[0],), (1,), 1
