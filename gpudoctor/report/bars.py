"""Bars and sparklines of characters, with an ASCII form for streams that cannot print blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.-~=+*#"


def bar(share: float, width: int, ascii_only: bool = False) -> str:
    """A bar of `width` cells filled to `share` (0 to 1)."""
    share = min(1.0, max(0.0, share))
    if ascii_only:
        return ("#" * round(share * width)).ljust(width)
    eighths = round(share * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def sparkline(values: Sequence[float], width: int, ascii_only: bool = False) -> str:
    """The course of `values` in at most `width` cells; a value that is not finite is `×`."""
    levels = _ASCII_LEVELS if ascii_only else _LEVELS
    picked = [values[i * len(values) // width] for i in range(width)] if len(values) > width else list(values)
    finite = [v for v in picked if math.isfinite(v)]
    if not finite:
        return "".join("x" if ascii_only else "×" for _ in picked)
    low, high = min(finite), max(finite)
    span = high - low
    return "".join(
        ("x" if ascii_only else "×") if not math.isfinite(v) else levels[3] if span <= 1e-12 * abs(high) else levels[min(7, int((v - low) / span * 8))]
        for v in picked
    )
