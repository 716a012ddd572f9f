"""Calls of memory counters whose result nobody uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.model import unique


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Counters of reserved and allocated memory as statements of their own."""
    events = module.model.calls("torch.cuda.memory_reserved", "torch.cuda.memory_allocated", "torch.cuda.memory_cached", "torch.cuda.max_memory_reserved")
    if events:
        dropped = {id(n.value) for n in ast.walk(module.tree) if isinstance(n, ast.Expr)} if module.tree is not None else set()
        for event in unique(events):
            if id(event.node) in dropped:
                yield at(event, call=text_of(event.node))
