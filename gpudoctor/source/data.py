"""Data sets, samplers and loaders: who splits the data between ranks, and which loaders feed training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from gpudoctor.source.events import Event, Region
from gpudoctor.source.model import Model
from gpudoctor.source.training import BACKWARDS, training
from gpudoctor.source.values import Value, alternatives, ancestors, const_of, same

_SHARDS = re.compile(r"rank|world|shard|split_by_node|split_dataset|num_replicas|get_worker_info|distributed|WebDataset|webdataset|partition", re.I)


def rank_aware(value: Value, limit: int = 200) -> bool:
    """True if the data may differ from rank to rank already: it depends on the rank, or its code speaks of ranks or shards."""
    for v in ancestors(value, limit):
        if v.kind in ("rank", "world") or (v.op == "call" and _SHARDS.search(str(v.name))) or v.op in ("param", "unknown", "star"):
            return True
        if v.op == "new" and v.target is not None:
            for cls in v.target.ancestry():
                if _SHARDS.search(_source(cls)):
                    return True
            if any(_SHARDS.search(b) for b in v.target.library_bases()):
                return True
        if v.op == "function" and v.target is not None and _SHARDS.search(ast.unparse(v.target.node)):
            return True
    return False


def _source(cls: Any) -> str:
    lines = cls.module.text.split("\n")
    return "\n".join(lines[cls.node.lineno - 1: cls.node.end_lineno])


def loops_over(model: Model, loader: Value) -> Iterator[Region]:
    """Loops that draw from the loader, directly or through wrappers and `next`."""
    for root in model.roots:
        for region in root.regions():
            if (region.kind == "loop" and region.value is not None and draws_from(region.value, loader)) or (region.kind == "loop" and any(e.fn == "builtins.next" and e.args and draws_from(e.args[0], loader) and e.loops()[:1] == [region]
                                               for e in region.events())):
                yield region


def draws_from(value: Value, loader: Value, depth: int = 0) -> bool:
    """True if iterating `value` iterates the loader."""
    if same(value, loader):
        return True
    if depth > 6:
        return False
    for a in alternatives(value):
        if a.op in ("wrap", "each", "generator", "item") or (a.op == "call" and (str(a.name) in ("builtins.enumerate", "builtins.zip", "?", "?.log_every") or
                                                                                str(a.name).startswith("?."))):
            if any(draws_from(x, loader, depth + 1) for x in a.args):
                return True
        elif a.op == "call" and str(a.name).startswith(("accelerator.prepare", "fabric.setup")) and a.args and draws_from(a.args[0], loader, depth + 1):
            return True
    return False


def trains_on(model: Model, loader: Value) -> bool:
    """True if a loop over the loader trains a DDP model."""
    for loop in loops_over(model, loader):
        root = loop
        while root.parent is not None:
            root = root.parent
        found = training(model, root)
        if any(loop.holds(b) for b in found.backwards if b.fn in BACKWARDS) and any(
                e.fn == "ddp.__call__" and loop.holds(e) for e in model.calls("ddp.__call__")):
            return True
    return False


def sampler_of(loader: Event) -> Value | None:
    """The sampler a DataLoader call is given, inside a batch sampler too."""
    given = loader.arg(3, "sampler")
    if given is not None and not (given.is_const and const_of(given) is None):
        return given
    batch = loader.arg(4, "batch_sampler")
    for a in alternatives(batch) if batch is not None else ():
        if a.kind == "batchsampler" and a.args:
            return a.args[0]
    return batch


def length_of(model: Model, value: Value | None, depth: int = 0) -> int | None:
    """The number of items, where literals and constants tell it for sure."""
    if value is None or depth > 8:
        return None
    found = alternatives(value)
    if len(found) != 1:
        return None
    v = found[0]
    if v.op in ("tuple", "list"):
        grown = "[*]" in model.attributes(v)
        return None if grown or any(a.op == "star" for a in v.args) else len(v.args)
    if v.op == "call" and v.name == "builtins.range":
        bounds = [const_of(a) for a in v.args]
        return len(range(*bounds)) if bounds and all(isinstance(b, int) for b in bounds) and (len(bounds) < 3 or bounds[2]) else None
    if (v.op == "call" and v.name == "builtins.enumerate") or v.op == "wrap":
        return length_of(model, v.args[0], depth + 1) if v.args else None
    if v.op == "comp" and isinstance(v.node, ast.ListComp) and len(v.node.generators) == 1 and not v.node.generators[0].ifs:
        return _comprehension_length(v.node.generators[0].iter)
    if v.op == "call" and str(v.name) in ("torch.randn", "torch.rand", "torch.zeros", "torch.ones", "torch.arange") and v.args:
        first = v.args[0].args[0] if v.args[0].op in ("tuple", "list") and v.args[0].args else v.args[0]
        n = const_of(first)
        return n if isinstance(n, int) else None
    return None


def _comprehension_length(source: ast.expr) -> int | None:
    if isinstance(source, ast.Call) and getattr(source.func, "id", "") == "range" and len(source.args) == 1 and isinstance(source.args[0], ast.Constant):
        n = source.args[0].value
        return n if isinstance(n, int) else None
    return len(source.elts) if isinstance(source, (ast.List, ast.Tuple)) else None
