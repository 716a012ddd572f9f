"""Training forwards that go around the DDP wrapper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.training import BACKWARDS, in_eval, loss_of
from gpudoctor.source.values import Value, alternatives, ancestors, is_kind

_WRAPS = ("torch.nn.parallel.DistributedDataParallel", "accelerator.prepare", "accelerator.prepare_model", "fabric.setup", "fabric.setup_module")
_AVERAGES = ("collective.all_reduce", "collective.reduce_scatter_tensor", "fabric.all_reduce", "accelerator.reduce")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Forward calls of wrapped modules whose results reach a backward, with no DDP forward on the way."""
    model = module.model
    wraps = model.calls(*_WRAPS)
    if not wraps:
        return
    inner: dict[int, Event] = {}
    for wrap in wraps:
        for given in wrap.args:
            if wrap.fn.startswith("torch") or is_kind(given, "module", "lightning") or any(is_kind(r, "ddp") for r in _results(wrap, given)):
                for a in alternatives(given):
                    if not a.is_const:
                        inner.setdefault(a.uid, wrap)
    averaged = [e for e in model.calls(*_AVERAGES) if any(_is_gradient(g) for g in e.given())]
    reported: set[int] = set()
    for backward in model.calls(*BACKWARDS):
        loss = loss_of(backward)
        if loss is None or any(model.root_of(e) is model.root_of(backward) for e in averaged):
            continue
        used = list(ancestors(loss, 1500))
        if any(v.op == "call" and v.name == "ddp.__call__" for v in used):
            continue
        for v in used:
            if v.op != "call" or not v.args or v.event is None or v.event.index in reported or not _is_forward(v):
                continue
            wrap = next((inner[a.uid] for a in alternatives(v.args[0]) if a.uid in inner), None)
            if wrap is not None and wrap.index < v.event.index < backward.index and not in_eval(v.event):
                reported.add(v.event.index)
                yield at(v.event, call=text_of(v.event.node), backward_line=backward.line)


def _results(wrap: Event, given: Value) -> list[Value]:
    result = wrap.result
    return [] if result is None else list(result.args) if result.op == "tuple" else [result]


def _is_forward(value: Value) -> bool:
    return str(value.name).endswith("__call__") or str(value.name) in ("module.forward", "lightning.forward")


def _is_gradient(value: Value) -> bool:
    return any(v.kind == "grad" for v in ancestors(value, 12))
