"""A no_sync block that holds a backward but not its forward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at_node
from gpudoctor.source.training import BACKWARDS, loss_of
from gpudoctor.source.values import ancestors, is_kind


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Backwards under no_sync whose DDP forward lies outside that block."""
    model = module.model
    seen: set[int] = set()
    for backward in model.calls(*BACKWARDS):
        loss = loss_of(backward)
        block = next((r for r in backward.within("with") if is_kind(r.value, "nosync")), None)
        if loss is None or block is None or id(block.node) in seen or block.node is None:
            continue
        forwards = [v.event for v in ancestors(loss, 800) if v.op == "call" and v.name == "ddp.__call__" and v.event is not None]
        if forwards and not any(is_kind(r.value, "nosync") for f in forwards for r in f.within("with")):
            seen.add(id(block.node))
            yield at_node(block.module, block.node, forward_line=forwards[0].line)
