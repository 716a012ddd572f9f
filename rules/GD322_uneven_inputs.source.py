"""Training loops whose length is seen to depend on the rank."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.data import length_of
from gpudoctor.source.evidence import at_node
from gpudoctor.source.training import training
from gpudoctor.source.values import Value, alternatives, ancestors, depends_on, is_kind

_MESSAGE = "{why}: some rank runs more steps than the others, and its last all-reduce waits for ever"
_FIX = "Put the loop at {place} into `with model.join():`, or give every rank the same number of batches (`DistributedSampler`, `drop_last`, padding)."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Strided shares of a list whose known length has an odd factor only, and ranges that depend on the rank."""
    model = module.model
    if not model.calls("ddp.__call__"):
        return
    for root in model.roots:
        for loop in training(model, root).loops:
            if loop.value is None or loop.node is None or not any(loop.holds(e) for e in model.calls("ddp.__call__")):
                continue
            if any(r.kind == "with" and is_kind(r.value, "joinctx") for r in loop.around()):
                continue
            why = _uneven(model, loop.value)
            if why:
                yield at_node(loop.module, loop.node, why=why, message=_MESSAGE, fix=_FIX)


def _uneven(model: Any, source: Value) -> str:
    for v in ancestors(source, 6, lambda v: v.op not in ("wrap", "call", "phi", "ite", "or") or v.kind in ("loader", "dataset")):
        if v.op == "call" and v.name == "builtins.range" and v.args and any(depends_on(a, lambda x: x.kind == "rank", 30) and not _shares(a) for a in v.args[:2]) and len(v.args) < 3:
            return "the number of steps depends on the rank"
        if v.op == "call" and v.name == "builtins.range" and len(v.args) == 1 and v.args[0].op == "len" and v.args[0].args and (why := _strided(model, v.args[0].args[0])):
            return why
        for a in alternatives(v):
            if why := _strided(model, a):
                return why
    return ""


def _shares(value: Value) -> bool:
    """True for arithmetic that may well balance itself: it knows the number of ranks."""
    return depends_on(value, lambda x: x.kind == "world", 30)


def _strided(model: Any, value: Value) -> str:
    for a in alternatives(value):
        if a.op == "item" and len(a.args) == 2 and isinstance(getattr(a.node, "slice", None), ast.Slice) and depends_on(a.args[1], lambda x: x.kind == "rank", 20):
            length = length_of(model, a.args[0])
            if length is not None and length % 2:
                return f"{length} items are dealt out by `[rank::world]`"
    return ""
