"""When to look: the sampling interval that keeps the probes within their share of a step."""

from __future__ import annotations

from collections import deque

FREE_STEPS = 32
FREE_NS = 2_000_000_000
MAX_INTERVAL = 1024
WINDOW = 16


class Budget:
    """Chooses the steps to sample. Intervals are powers of two counted from step 0, so ranks share their samples.

    The first `free_steps` steps are always sampled (short scripts get full evidence) unless that took `FREE_NS`.
    Afterwards the interval follows the cost of a sampled step over that of a plain one, seen over the last steps.
    """

    def __init__(self, share: float, least: int = 1, free_steps: int = FREE_STEPS) -> None:
        self.share = share
        self.free_steps = free_steps
        self.least = 1 << max(0, least - 1).bit_length()
        self.interval = self.least
        self._spent = 0
        self._sampled: deque[tuple[int, int]] = deque(maxlen=WINDOW)
        self._plain: deque[tuple[int, int]] = deque(maxlen=WINDOW)

    def after(self, step: int, probe_ns: int, step_ns: int, sampled: bool) -> None:
        """Learn what step `step` cost in probes, out of `step_ns` in all."""
        self._spent += probe_ns
        if step >= 2:
            (self._sampled if sampled else self._plain).append((probe_ns, max(step_ns, 1)))
        self.interval = max(self.least, self._wanted())

    def samples(self, step: int) -> bool:
        """True if step `step` is to be looked at closely."""
        if step < self.free_steps and self._spent < FREE_NS:
            return step % self.least == 0
        return step % self.interval == 0

    def _wanted(self) -> int:
        if not self._sampled:
            return self.interval
        dear = _median(p for p, _ in self._sampled)
        cheap = _median(p for p, _ in self._plain) if self._plain else 0.0
        step = _median(s - p for p, s in (*self._sampled, *self._plain))
        room = self.share * step - cheap
        extra = max(dear - cheap, 0.0)
        if extra <= room:
            return 1
        if room <= 0:
            return MAX_INTERVAL
        return min(MAX_INTERVAL, 1 << max(0, int(extra / room)).bit_length())


def _median(values: object) -> float:
    ordered = sorted(values)  # type: ignore[call-overload]
    return float(ordered[len(ordered) // 2])
