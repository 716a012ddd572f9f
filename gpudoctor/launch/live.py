"""One line at the foot of the terminal that says how far a long run is."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

from gpudoctor.probes.heartbeat import Beat
from gpudoctor.units import duration

QUIET_FOR_S = 10.0
EVERY_S = 0.5


class LiveLine:
    """Draws on a terminal only, and only after the run has lasted `QUIET_FOR_S`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._on = stream.isatty()
        self._started = self._drawn_at = time.monotonic()
        self._drawn = False
        self._at_line_start = True
        self._steps: deque[tuple[float, int]] = deque(maxlen=40)

    def __enter__(self) -> LiveLine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._wipe()

    def update(self, beats: dict[int, Beat]) -> None:
        """Draw anew if it is time."""
        now = time.monotonic()
        if not self._on or now - self._started < QUIET_FOR_S or now - self._drawn_at < EVERY_S or not self._at_line_start:
            return
        self._drawn_at = now
        if text := describe(beats, self._pace(beats, now)):
            self._wipe()
            self._stream.write(f"\x1b[2m{text}\x1b[0m")
            self._stream.flush()
            self._drawn = True

    @contextmanager
    def aside(self, data: bytes) -> Iterator[None]:
        """Take the line away while `data` is written."""
        self._wipe()
        yield
        self._at_line_start = data.endswith(b"\n")

    def _pace(self, beats: dict[int, Beat], now: float) -> float | None:
        """Time of a step [ns] over the latest draws."""
        self._steps.append((now, max((int(b.head["step"]) for b in beats.values()), default=-1)))
        (then, first), (_, last) = self._steps[0], self._steps[-1]
        return (now - then) / (last - first) * 1e9 if last > first else None

    def _wipe(self) -> None:
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False


def describe(beats: dict[int, Beat], step_ns: float | None) -> str:
    """`step 120 · 82 ms a step · rank 1 is 3 steps behind`; empty before the first step."""
    steps = {r: int(b.head["step"]) for r, b in beats.items()}
    if not steps or max(steps.values()) < 0:
        return ""
    parts = [f"step {max(steps.values()) + 1}"]
    if step_ns is not None:
        parts.append(f"{duration(step_ns)} a step")
    last = min(steps, key=lambda r: (steps[r], r))
    if (behind := max(steps.values()) - steps[last]) > 1:
        parts.append(f"rank {last} is {behind} steps behind")
    waiting = [r for r, b in beats.items() if b.head["op"]]
    if waiting and len(waiting) < len(beats):
        parts.append(f"{len(waiting)} of {len(beats)} ranks wait in {beats[waiting[0]].head['op']}")
    return " · ".join(parts)
