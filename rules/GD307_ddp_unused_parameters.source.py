"""Layers of a wrapped class that no method but `__init__` mentions, or that only one branch of forward uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, Region
from gpudoctor.source.evidence import at
from gpudoctor.source.modules import DDP, wrapped
from gpudoctor.source.training import in_eval
from gpudoctor.source.values import Value, alternatives, ancestors, const_of, is_kind, same

_MESSAGE = "`{layers}` of `{cls}` (line {layer_line}) takes no part in its forward, and DDP is not told: the second step raises RuntimeError"
_FIX = "Delete the layer of line {layer_line} or freeze it (`requires_grad_(False)`) before the wrap; if it is used now and then, pass `find_unused_parameters=True` at {place}."

_SOMETIMES = "`{layers}` of `{cls}` is used in some steps only (line {layer_line}), and DDP is not told: a step without it raises RuntimeError or hangs"
_CHANCE = ("torch.rand", "torch.randint", "random.random", "random.randint", "numpy.random.rand", "numpy.random.random", "random.choice")
_NO_PARAMETERS = ("ReLU", "GELU", "Dropout", "Identity", "Flatten", "Softmax", "Sigmoid", "Tanh", "Pool", "Loss", "Upsample", "SiLU", "Unfold", "Fold", "Pad", "Shuffle", "LeakyReLU")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Only classes whose whole text is at hand and that do not look up layers by name."""
    model = module.model
    for wrap in model.calls(DDP):
        inner = wrapped(wrap)
        given = wrap.kwargs.get("find_unused_parameters")
        if inner is None or "**" in wrap.kwargs or (given is not None and const_of(given, True) is not False) or const_of(wrap.kwargs.get("static_graph"), False) is not False:
            continue
        if not any(wrap.index < e.index for e in model.calls("ddp.__call__")):
            continue
        for value in alternatives(inner):
            if value.op != "new" or value.kind != "module":
                continue
            unused = _unused(model, value)
            if unused:
                _name, line = unused[0]
                yield at(wrap, layers=", ".join(n for n, _ in unused), layer_line=line, cls=value.name, message=_MESSAGE, fix=_FIX)
                break
            varying = _sometimes(model, value, wrap)
            if varying is not None:
                name, event = varying
                yield at(wrap, message=_SOMETIMES, fix=_FIX, layers=name, cls=value.name, layer_line=event.line)
                break


def _sometimes(model: Any, value: Value, wrap: Event) -> tuple[str, Event] | None:
    """A layer that forward calls only under a condition that changes from step to step, in one arm alone."""
    for name, layer in model.attributes(value).items():
        if not _has_parameters(layer):
            continue
        arms: list[Region] = []
        for event in model.calls("module.__call__"):
            if event.index < wrap.index or not same(event.recv, layer) or in_eval(event):
                continue
            arm = next((r for r in _inside_forward(event) if r.kind == "arm" and r.cond is not None and _varies(r.cond)), None)
            if arm is None:
                arms = []
                break
            arms.append(arm)
        if arms and len({(id(a.parent), a.truth) for a in arms}) == len({id(a.parent) for a in arms}):
            found = next(e for e in model.calls("module.__call__") if e.index >= wrap.index and same(e.recv, layer))
            return name, found
    return None


def _inside_forward(event: Event) -> Iterator[Region]:
    for region in event.region.around():
        yield region
        if region.kind == "call" and region.value is not None and region.value.target is not None and region.value.target.name == "forward":
            return


def _varies(cond: Value) -> bool:
    """True for conditions on the step's number or on chance; those on data alone are left alone."""
    for v in ancestors(cond, 40, lambda v: v.kind in ("tensor", "batch") and str(v.name) not in _CHANCE):
        if v.op in ("index", "phi") or (v.op == "call" and str(v.name) in _CHANCE):
            return True
    return False


def _unused(model: Any, value: Value) -> list[tuple[str, int]]:
    line = value.target.ancestry()
    if any(b not in ("torch.nn.Module", "builtins.object", "abc.ABC") for b in value.target.library_bases()):
        return []
    read: set[str] = set()
    for cls in line:
        for method in cls.methods.values():
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                    read.add(node.attr)
                if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in ("getattr", "children", "modules", "named_children", "named_modules", "vars", "setattr"):
                    return []
    if "_modules" in read or "__dict__" in read:
        return []
    out = []
    for name, layer in model.attributes(value).items():
        if name in read or not _has_parameters(layer):
            continue
        if any(e.fn.endswith("requires_grad_") or (e.fn == "setattr" and const_of(e.args[0]) == "requires_grad") for e in model.calls("module.requires_grad_", "setattr")):
            return []
        out.append((name, getattr(layer.node, "lineno", 0)))
    return out


def _has_parameters(layer: Value) -> bool:
    found = alternatives(layer)
    return bool(found) and all((a.op == "call" and str(a.name).startswith("torch.nn.") and is_kind(a, "module") and not any(w in str(a.name) for w in _NO_PARAMETERS)
                               and not str(a.name).endswith(("Sequential", "ModuleList", "ModuleDict"))) or (a.op == "call" and str(a.name).endswith("Sequential") and any(
                                   _has_parameters(x) for x in a.args)) for a in found)
