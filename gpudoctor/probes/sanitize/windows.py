"""Which steps to watch, so that a run under the sanitizer costs no more than it may."""

from __future__ import annotations

from collections import deque
from statistics import median

FIRST = 10
LENGTH = 5
MAX_OFF = 500


class Windows:
    """Watches the first steps, measures a few bare ones, then chooses the share of steps that keeps to `limit`.

    `limit` is how long a mean step may take, as a multiple of a bare one.
    """

    def __init__(self, limit: float = 1.5) -> None:
        self.limit = limit
        self.on = True
        self._left = FIRST
        self._times: dict[bool, deque[int]] = {True: deque(maxlen=32), False: deque(maxlen=32)}
        self._skip = 2

    @property
    def ratio(self) -> float | None:
        """A watched step over a bare one; None until both have been seen."""
        watched, bare = self._times[True], self._times[False]
        return median(watched) / max(median(bare), 1) if watched and bare else None

    def after(self, step_ns: int) -> bool:
        """A step took `step_ns`; return whether to watch the next. Steps right after a switch are not counted."""
        if self._skip:
            self._skip -= 1
        else:
            self._times[self.on].append(step_ns)
        self._left -= 1
        if self._left <= 0:
            self._turn()
        return self.on

    def _turn(self) -> None:
        ratio = self.ratio
        if ratio is not None and ratio <= self.limit - 0.05:
            self.on, self._left = True, 1 << 60
            return
        self.on = not self.on
        self._skip = 1
        if self.on or ratio is None:
            self._left = LENGTH
        else:
            share = (self.limit - 1.05) / (ratio - 1)
            self._left = min(MAX_OFF, max(LENGTH, round(LENGTH * (1 - share) / share)))
