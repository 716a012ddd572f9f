"""Interval algebra: cut time wherever any interval starts or ends, and count who is there in each cut."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudoctor.timeline.clocks import Ints, Mask


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts of time in order, without gaps or overlaps between the first start and the last end; `count[k]` is how many
    intervals of kind `k` cover each cut."""

    start: Ints
    end: Ints
    count: Ints

    @property
    def length(self) -> Ints:
        return self.end - self.start


def sweep(start: Ints, end: Ints, kind: Ints, kinds: int) -> Cuts:
    """Cut time by intervals [start, end) of `kinds` kinds, numbered from 0; empty intervals are passed over."""
    real = end > start
    start, end, kind = start[real], end[real], kind[real]
    time = np.concatenate([start, end])
    order = np.argsort(time, kind="stable")
    time = time[order]
    last = np.flatnonzero(np.r_[time[1:] != time[:-1], True]) if len(time) else np.zeros(0, dtype=np.int64)
    sign = np.where(order < len(start), 1, -1)
    who = np.concatenate([kind, kind])[order]
    count = np.stack([np.cumsum(np.where(who == k, sign, 0))[last[:-1]] for k in range(kinds)]) if len(time) else np.zeros((kinds, 0), dtype=np.int64)
    bounds = time[last]
    return Cuts(bounds[:-1], bounds[1:], count)


def covered(start: Ints, end: Ints) -> int:
    """How much time any of the intervals [start, end) covers."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    return int(np.maximum(end - np.maximum(start, np.concatenate([start[:1], reached[:-1]])), 0).sum())


def runs(start: Ints, end: Ints, chosen: Mask) -> tuple[Ints, Ints]:
    """Merge chosen cuts that touch; returns starts and ends."""
    at = np.flatnonzero(chosen)
    if not len(at):
        return start[:0], end[:0]
    first = np.r_[True, start[at[1:]] > end[at[:-1]]]
    last = np.r_[first[1:], True]
    return start[at[first]], end[at[last]]
