"""Layers stored into a wrapped module, and parameters unfrozen after the wrap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event
from gpudoctor.source.evidence import at
from gpudoctor.source.modules import DDP, belongs, wrapped
from gpudoctor.source.values import Value, alternatives, ancestors, const_of, is_kind

_MESSAGE = "{what} after DDP wrapped the module on line {wrap_line}: its gradients are never averaged"
_FIX = "Do what {place} does before the DDP call of line {wrap_line}, or wrap again after it."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Stores after the wrap, in program order, on the wrapped module or its parts."""
    model = module.model
    for wrap in model.calls(DDP):
        inner = wrapped(wrap)
        if inner is None or not _sure(inner):
            continue
        root = model.root_of(wrap)
        for event in model.calls("setattr", "setitem", "module.add_module", "module.register_parameter", "module.register_module", "module.requires_grad_", "param.requires_grad_", "tensor.requires_grad_"):
            if not wrap.index < event.index < root.last or (event.region is wrap.region and event.node is wrap.node) or _rewrapped(model, event, wrap):
                continue
            what = _adds(event)
            if what and event.recv is not None and (belongs(model, event.recv, inner) or is_kind(event.recv, "ddp")) and event.index > wrap.index and not _inside_forward(event):
                yield at(event, what=what, wrap_line=wrap.line, message=_MESSAGE, fix=_FIX)
            elif _unfreezes(event) and event.recv is not None and _params_of(model, event.recv, inner) and _frozen_before(model, wrap, inner):
                yield at(event, what="parameters are unfrozen", wrap_line=wrap.line, message=_MESSAGE, fix=_FIX)


def _sure(value: Value) -> bool:
    return any(a.op in ("new", "call", "param") for a in alternatives(value))


def _adds(event: Event) -> str:
    if event.fn in ("setattr", "setitem"):
        value, name = event.args[1], const_of(event.args[0])
        fresh = any((a.op == "new" or a.op == "call") and a.kind in ("module", "param") and a.event is not None for a in alternatives(value))
        return f"`{name}` is set" if fresh and not is_kind(value, "ddp") else ""
    if event.fn in ("module.add_module", "module.register_parameter", "module.register_module"):
        return f"`{const_of(event.arg(0, 'name'), '?')}` is added"
    return ""


def _unfreezes(event: Event) -> bool:
    if event.fn == "setattr":
        return const_of(event.args[0]) == "requires_grad" and const_of(event.args[1]) is True
    return event.fn.endswith("requires_grad_") and const_of(event.arg(0, "requires_grad"), True) is True


def _freezes(event: Event) -> bool:
    if event.fn == "setattr":
        return const_of(event.args[0]) == "requires_grad" and const_of(event.args[1]) is False
    return event.fn.endswith("requires_grad_") and const_of(event.arg(0, "requires_grad"), True) is False


def _params_of(model: Any, value: Value, inner: Value) -> bool:
    return any(belongs(model, v, inner) for v in ancestors(value, 12) if v.kind in ("module", "ddp", "") and v.op != "const")


def _frozen_before(model: Any, wrap: Event, inner: Value) -> bool:
    return any(e.index < wrap.index and _freezes(e) and e.recv is not None and _params_of(model, e.recv, inner)
               for e in model.calls("setattr", "module.requires_grad_", "tensor.requires_grad_"))


def _inside_forward(event: Event) -> bool:
    return any(r.kind == "call" and r.value is not None and r.value.target is not None and r.value.target.name in ("__init__", "forward") for r in event.region.around())


def _rewrapped(model: Any, event: Event, wrap: Event) -> bool:
    return any(w.index > event.index for w in model.calls(DDP))
