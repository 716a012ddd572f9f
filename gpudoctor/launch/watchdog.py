"""Notice that a run has stopped making progress, and say so only when nothing at all moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gpudoctor.launch.processes import descendants, work_done
from gpudoctor.probes.heartbeat import Beat, read

BUSY_FACTOR = 6
IDLE_SHARE = 0.02
IDLE_BYTES = 1 << 16


def beats_in(folder: Path) -> dict[int, Beat]:
    """The hearts in the private folder, by rank."""
    found = (read(path) for path in folder.glob("rank*.beat"))
    return {b.rank: b for b in found if b is not None}


class Watchdog:
    """Judges a run by its heartbeats, its output, and what its processes consume.

    A run is stalled when for `timeout` seconds no rank beat, nothing was printed, and the ranks with all their children
    used under 2 % of a core each and moved no data. Ranks that spin (NCCL waits do) are judged by beats and output
    alone, after `BUSY_FACTOR` times as long. A timeout of 0 turns it off.
    """

    def __init__(self, folder: Path, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._timeout, self._clock = folder, timeout, clock
        self._progress: object = None
        self._moved_at = self._idle_since = self._looked_at = clock()
        self._work: tuple[float, int] = (0.0, 0)

    def stalled_for(self, received: int) -> float | None:
        """Seconds without progress if the run is stalled, else None; `received` counts bytes of output so far."""
        now = self._clock()
        if self._timeout <= 0 or now - self._looked_at < min(1.0, self._timeout / 10):
            return None
        since, self._looked_at = now - self._looked_at, now
        living = [b for b in beats_in(self._folder).values() if b.alive()]
        progress = (received, tuple(sorted((b.pid, b.head["beats"]) for b in living)))
        work, before = work_done(descendants(b.pid for b in living)), self._work
        self._work = work
        if progress != self._progress or not living:
            self._progress = progress
            self._moved_at = self._idle_since = now
            return None
        busy = work[0] - before[0] > IDLE_SHARE * since * len(living) + 0.02 or work[1] - before[1] > IDLE_BYTES * since
        if busy:
            self._idle_since = now
        quiet = now - self._moved_at
        if now - self._idle_since >= self._timeout or quiet >= BUSY_FACTOR * self._timeout:
            return quiet
        return None
