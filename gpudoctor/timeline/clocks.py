"""Vector clocks: how much of each stream's work is known to be done before the next work of another stream starts.

A clock is a row of counts: `row[a] = n` says that the first `n` operations of stream `a` are done. Each stream has one,
and so does the host. Only controls (records, waits, synchronisations) change them, so one pass over the controls is
enough; what was known at any launch is looked up afterwards, for many launches at once.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Column = npt.NDArray[Any]


class Clocks:
    """The clocks of one process with `streams` streams, and the history of every change.

    Times are host times [ns]; controls must come in their order. `counts` is how many operations of each stream were
    launched so far: the caller moves it on with `launch`.
    """

    def __init__(self, streams: int) -> None:
        self.streams = streams
        self.host = streams
        self.counts = np.zeros(streams, dtype=np.int64)
        self._rows = np.zeros((streams + 1, streams), dtype=np.int64)
        self._log: dict[int, list[tuple[int, Ints, Ints]]] = defaultdict(list)
        self._direct: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self._legacy: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        self._frozen: dict[int, tuple[Ints, Ints, Ints]] = {}

    def launch(self, streams: Ints) -> None:
        """Count operations launched since the last control; one entry of `streams` each."""
        if len(streams):
            self.counts += np.bincount(streams, minlength=self.streams)

    def snapshot(self, stream: int) -> Ints:
        """What an event recorded into `stream` now stands for."""
        row: Ints = np.maximum(self._rows[stream], self._rows[self.host])
        row[stream] = self.counts[stream]
        return row

    def wait(self, stream: int, seen: Ints, time: int, recorded_in: int | None = None) -> None:
        """`stream` waits for a snapshot; `recorded_in` is the stream that the event was recorded into."""
        self._raise(stream, seen, time)
        if recorded_in is not None and recorded_in != stream:
            self._direct[stream, recorded_in].append((time, int(seen[recorded_in])))

    def host_waits(self, seen: Ints, time: int) -> None:
        """The host waits for a snapshot."""
        self._raise(self.host, seen, time)

    def legacy(self, stream: int, others: Ints, time: int) -> None:
        """Work launched into `stream` now starts after all that was launched into `others` (the legacy stream's rule)."""
        seen = self._rows[stream].copy()
        for other in others.tolist():
            np.maximum(seen, self.snapshot(other), out=seen)
            self._legacy[stream, other].append((time, int(self.counts[other])))
        self._raise(stream, seen, time)

    def _raise(self, row: int, seen: Ints, time: int) -> None:
        mine = self._rows[row]
        changed = np.flatnonzero(seen > mine)
        if len(changed):
            values = seen[changed]
            mine[changed] = values
            self._log[row].append((time, changed, values))

    def known(self, stream: int, other: int, times: Ints) -> Ints:
        """How many operations of `other` the clock of `stream` (or `self.host`) held at each time."""
        columns, when, values = self._history(stream)
        low, high = np.searchsorted(columns, [other, other + 1])
        return _lookup(when[low:high], values[low:high], times)

    def waited(self, stream: int, other: int, times: Ints) -> tuple[Ints, Ints]:
        """(count, when) of the last direct wait of `stream` for an event in `other` before each time; -1 for never."""
        when, values = _columns(self._direct.get((stream, other)))
        at = np.searchsorted(when, times, side="right") - 1
        reach = np.maximum.accumulate(values) if len(values) else values
        return _pick(reach, at), _pick(when, at)

    def by_legacy(self, stream: int, other: int, times: Ints) -> Ints:
        """How many operations of `other` the legacy stream's rule put before work of `stream` at each time."""
        when, values = _columns(self._legacy.get((stream, other)))
        return _lookup(when, values, times)

    def _history(self, row: int) -> tuple[Ints, Ints, Ints]:
        if row not in self._frozen:
            log = self._log.get(row, [])
            columns = np.concatenate([c for _, c, _ in log]) if log else np.zeros(0, dtype=np.int64)
            values = np.concatenate([v for _, _, v in log]) if log else np.zeros(0, dtype=np.int64)
            when = np.repeat(np.array([t for t, _, _ in log], dtype=np.int64), [len(c) for _, c, _ in log]) if log else columns
            order = np.argsort(columns, kind="stable")
            self._frozen[row] = columns[order], when[order], values[order]
        return self._frozen[row]


def _columns(pairs: list[tuple[int, int]] | None) -> tuple[Ints, Ints]:
    if not pairs:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    both = np.array(pairs, dtype=np.int64)
    return both[:, 0], both[:, 1]


def _lookup(when: Ints, values: Ints, times: Ints) -> Ints:
    found: Ints = np.maximum(_pick(values, np.searchsorted(when, times, side="right") - 1), 0)
    return found


def _pick(values: Ints, at: Ints) -> Ints:
    if not len(values):
        return np.full(len(at), -1, dtype=np.int64)
    return np.where(at >= 0, values[np.maximum(at, 0)], -1)
