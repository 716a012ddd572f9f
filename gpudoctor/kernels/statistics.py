"""The kernels' rows as a reader wants them; free of torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LOWEST_EXPONENT = -40
"""floor(log2|x|) of bin 0, which also holds everything smaller; bin 63 holds 2^23 and above."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one buffer of `numel` elements; `histogram` maps floor(log2|x|) to a count, bins without any left out."""

    numel: int
    norm: float
    mean: float
    total: float
    absmax: float
    zeros: int
    nonfinite: int
    sketch: float
    histogram: dict[int, int]

    @classmethod
    def of(cls, numel: int, scalars: Sequence[float], bins: Sequence[int] = ()) -> Statistics:
        """From a row of scalars (norm2, sum, sketch, absmax, zeros, nonfinite) and a row of bins, both read back as lists."""
        norm2, total, sketch, absmax, zeros, nonfinite = scalars
        return cls(numel, math.sqrt(norm2) if norm2 >= 0 else norm2, total / numel if numel else 0.0, total, absmax, int(zeros), int(nonfinite), sketch,
                   {LOWEST_EXPONENT + n: count for n, count in enumerate(bins) if count})
