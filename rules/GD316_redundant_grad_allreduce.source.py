"""Collectives on gradients of a module that DDP reduces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.model import unique
from gpudoctor.source.training import BACKWARDS, hot, loss_of
from gpudoctor.source.values import Value, alternatives, ancestors, is_kind


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Reductions of gradients whose parameters belong to a DDP that ran its forward outside no_sync."""
    model = module.model
    wraps = model.calls("torch.nn.parallel.DistributedDataParallel")
    reduces = model.calls("collective.all_reduce", "collective.all_reduce_coalesced")
    if not wraps or not reduces:
        return
    inner = {a.uid for w in wraps if w.args for a in alternatives(w.args[0])}
    for event in unique(reduces):
        if hot(model, event) is None or not any(_gradient_of(g, inner) for g in event.given()):
            continue
        for backward in model.calls(*BACKWARDS):
            loss = loss_of(backward)
            forwards = [v.event for v in ancestors(loss, 800) if v.op == "call" and v.name == "ddp.__call__" and v.event is not None] if loss is not None else []
            if backward.index < event.index and forwards and not any(is_kind(r.value, "nosync") for f in forwards for r in f.within("with")):
                yield at(event, call=text_of(event.node))
                break


def _gradient_of(value: Value, inner: set[int]) -> bool:
    found = list(ancestors(value, 30))
    return any(v.kind == "grad" for v in found[:8]) and any(v.kind in ("ddp",) or v.uid in inner for v in found)
