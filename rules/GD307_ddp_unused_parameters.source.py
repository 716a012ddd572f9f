"""Layers of a wrapped class that no method but `__init__` mentions, or that only one branch of forward uses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.modules import DDP, wrapped
from gpudoctor.source.values import Value, alternatives, const_of, is_kind

_MESSAGE = "`{layers}` of `{cls}` (line {layer_line}) takes no part in its forward, and DDP is not told: the second step raises RuntimeError"
_FIX = "Delete the layer of line {layer_line} or freeze it (`requires_grad_(False)`) before the wrap; if it is used now and then, pass `find_unused_parameters=True` at {place}."

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






def _unused(model: Any, value: Value) -> list[tuple[str, int]]:
    line = value.target.ancestry()
    if any(b not in ("torch.nn.Module", "builtins.object", "abc.ABC") for b in value.target.library_bases()):
        return []
    read: set[str] = set()
    for cls in line:
        for method in cls.methods.values():
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and (method.name != "__init__" or not _only_built(node)):
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


def _only_built(node: ast.Attribute) -> bool:
    return False


def _has_parameters(layer: Value) -> bool:
    found = alternatives(layer)
    return bool(found) and all((a.op == "call" and str(a.name).startswith("torch.nn.") and is_kind(a, "module") and not any(w in str(a.name) for w in _NO_PARAMETERS)
                               and not str(a.name).endswith(("Sequential", "ModuleList", "ModuleDict"))) or (a.op == "call" and str(a.name).endswith("Sequential") and any(
                                   _has_parameters(x) for x in a.args)) for a in found)
