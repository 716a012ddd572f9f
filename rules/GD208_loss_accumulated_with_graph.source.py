"""Losses with their graph, summed or listed across steps of a training loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.training import hot, in_eval, loss_of, training
from gpudoctor.source.values import Value, alternatives, ancestors, is_kind

_CUTS = ("detach", "item", "tolist", "numpy", "detach_", "argmax", "argsort", "max", "topk", "bool", "long", "int", "eq", "ne", "ge", "gt")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Sums carried by the loop and lists from outside it, if no backward runs on the sum itself."""
    model = module.model
    for event in model.calls("augassign", "tensor.op", "list.append"):
        loop = hot(model, event)
        if loop is None or in_eval(event):
            continue
        found = training(model, model.root_of(event))
        losses = [loss for b in found.backwards if loop.holds(b) and (loss := loss_of(b)) is not None]
        kept = _kept(event, loop)
        if kept is None or not _has_graph(kept) or not any(_same_loss(kept, loss) for loss in losses):
            continue
        if event.result is not None and any(v.uid == event.result.uid for loss in losses for v in ancestors(loss, 300)):
            continue
        if event.fn == "list.append" and event.recv is not None and any(a.uid in {v.uid for loss in losses for v in ancestors(loss, 300)} for a in alternatives(event.recv)):
            continue
        yield at(event, what=text_of(event.node))


def _kept(event: Event, loop: Any) -> Value | None:
    if event.fn == "list.append":
        made = [a for a in alternatives(event.recv) if a.op in ("list", "comp")] if event.recv is not None else []
        outside = made and all(getattr(a.node, "lineno", 0) < loop.node.lineno or (a.node is not None and not _inside(a.node, loop.node)) for a in made)
        return event.args[0] if outside and event.args else None
    if event.fn == "augassign":
        return event.args[0] if event.recv is not None and _carried(event.recv, loop) else None
    if event.result is None or event.result.name != "+" or type(event.node).__name__ != "BinOp":
        return None
    left, right = event.args
    if _carried(left, loop) and any(p.args[1:] and any(a.uid == event.result.uid for a in alternatives(p)) for p in loop.phis):
        return right
    return None


def _carried(value: Value, loop: Any) -> bool:
    return value.op == "phi" and any(value is p for p in loop.phis)


def _inside(node: Any, loop: Any) -> bool:
    return bool(loop.lineno <= node.lineno <= (loop.end_lineno or loop.lineno))


def _has_graph(value: Value) -> bool:
    def stop(v: Value) -> bool:
        return (v.op == "call" and (str(v.name).rpartition(".")[2] in _CUTS or in_eval_value(v))) or (v.op == "attr" and v.name == "data")

    for v in ancestors(value, 200, stop):
        if v.op == "call" and str(v.name).endswith("__call__") and v.kind == "tensor" and not stop(v):
            return is_kind(value, "tensor") and not any(stop(a) for a in alternatives(value))
    return False


def in_eval_value(v: Value) -> bool:
    return v.event is not None and in_eval(v.event)


def _same_loss(kept: Value, loss: Value) -> bool:
    ours = {a.uid for a in alternatives(kept)}
    return any(v.uid in ours for v in ancestors(loss, 60)) or any(v.uid in {a.uid for a in alternatives(loss)} for v in ancestors(kept, 12))
