"""DDP around a DDP, and DDP calls in a loop around a module from outside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.modules import DDP, wrapped
from gpudoctor.source.values import Value, alternatives


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """A loop counts if the wrapped module is older than its iteration."""
    model = module.model
    for wrap in model.calls(DDP):
        inner = wrapped(wrap)
        if inner is None:
            continue
        found = [a for a in alternatives(inner) if not a.is_const]
        if found and all(a.kind == "ddp" and a.op == "call" and a.name == DDP for a in found):
            yield at(wrap, what="DDP wraps a module that is wrapped already")
            continue
        loop = next(iter(wrap.loops()), None)
        if loop is not None and not loop.node.__class__.__name__.endswith("Comp") and found and all(_older(a, loop.first) for a in found) and any(
                loop.holds(e) for e in model.calls("tensor.backward", "ddp.__call__")):
            yield at(wrap, what="DDP wraps the same module in every iteration")


def _older(value: Value, first: int) -> bool:
    return value.kind == "ddp" or (value.event is not None and value.event.index < first and value.op in ("call", "new") and value.kind == "module")
