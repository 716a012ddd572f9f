"""Is B slower than A, beyond noise? Interleaved pairs, the ratio of each pair, Student's interval of their logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

# Two-sided 99 % quantiles of Student's t for 2 … 30 degrees of freedom; the normal's beyond.
_T99 = (9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878, 2.861,
        2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779, 2.771, 2.763, 2.756, 2.750)


@dataclass(frozen=True, slots=True)
class Ratio:
    """head ÷ base: the geometric mean of the pairs and its 99 % interval."""

    estimate: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{100 * (self.estimate - 1):+.1f} % (99 % interval {100 * (self.low - 1):+.1f} to {100 * (self.high - 1):+.1f} %, {self.pairs} pairs)"


def ratio(base: Sequence[float], head: Sequence[float]) -> Ratio | None:
    """Compare paired positive samples; None with fewer than three pairs."""
    logs = [math.log(h / b) for b, h in zip(base, head, strict=True) if b > 0 and h > 0]
    if len(logs) < 3:
        return None
    centre = mean(logs)
    quantile = _T99[len(logs) - 3] if len(logs) - 3 < len(_T99) else 2.576
    half = quantile * stdev(logs) / math.sqrt(len(logs))
    return Ratio(math.exp(centre), math.exp(centre - half), math.exp(centre + half), len(logs))


def divergence(a: dict[int, float], b: dict[int, float]) -> float:
    """Jensen–Shannon distance of two histograms (base 2, 0 equal to 1 disjoint; Lin 1991, Endres and Schindelin 2003)."""
    total = 0.0
    for key in a.keys() | b.keys():
        p, q = a.get(key, 0.0), b.get(key, 0.0)
        m = (p + q) / 2
        total += (p * math.log2(p / m) if p else 0.0) + (q * math.log2(q / m) if q else 0.0)
    return math.sqrt(max(0.0, total / 2))
