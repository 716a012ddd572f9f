"""Initial scales that are no powers of two, or far from useful."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.model import unique
from gpudoctor.source.values import const_of


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Constants only."""
    for event in unique([e for e in module.model.events if e.fn.endswith(".GradScaler")]):
        scale = const_of(event.kwargs.get("init_scale"))
        if isinstance(scale, (int, float)) and not isinstance(scale, bool) and scale > 0:
            if not math.log2(scale).is_integer():
                yield at(event, scale=scale, why="not a power of two, so scaling rounds")
            elif not params["low"] <= scale <= params["high"]:
                yield at(event, scale=scale, why="very small" if scale < params["low"] else "very large")
