"""Workers seeded alike, and data sets that draw from a generator that all ranks seed alike."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at, at_node
from gpudoctor.source.training import distributed
from gpudoctor.source.values import Value, alternatives, const_of, depends_on, literal

_MESSAGE = "{what}: all ranks draw the same random numbers"
_FIX = ("Seed by rank and worker: after building the model `torch.manual_seed(seed + rank)`; in `worker_init_fn` seed from `torch.initial_seed()`, "
        "which differs by worker and epoch. Look at {place}.")
_SEEDS = ("torch.manual_seed", "random.seed", "numpy.random.seed", "accelerate.utils.set_seed", "lightning.pytorch.seed_everything", "transformers.set_seed")
_DRAWS = {"rand", "randn", "randint", "randperm", "random", "uniform", "choice", "normal", "shuffle", "bernoulli", "rand_like", "randn_like", "gauss", "sample", "randrange"}


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """First what `worker_init_fn` does, then global seeds beside random draws in `__getitem__`."""
    model = module.model
    if not distributed(model):
        return
    for event in model.calls("torch.utils.data.DataLoader"):
        start = event.kwargs.get("worker_init_fn")
        for a in alternatives(start) if start is not None else ():
            node = _fixed_seed(a)
            if node is not None and a.target is not None:
                yield at_node(a.target.module, node, what="`worker_init_fn` seeds with a number that is the same on every rank", message=_MESSAGE, fix=_FIX)
        if start is not None and not (literal(start) and const_of(start, 0) is None):
            continue
        if event.kwargs.get("generator") is not None or not _draws(event.arg(0, "dataset")):
            continue
        seeds = [e for e in model.calls(*_SEEDS) if e.args and model.root_of(e) is model.root_of(event)]
        if not seeds or any(depends_on(e.args[0], lambda v: v.kind == "rank" or v.op in ("param", "unknown")) for e in seeds):
            continue
        if not any(e.fn == "torch.manual_seed" or e.fn.endswith(("set_seed", "seed_everything")) for e in seeds):
            continue
        yield at(seeds[-1], what=f"the data set of line {event.line} draws random numbers, and every rank seeds with the same one", message=_MESSAGE, fix=_FIX)


def _fixed_seed(fn: Value) -> ast.AST | None:
    if fn.op != "function" or fn.target is None:
        return None
    names = {a.arg for a in fn.target.node.args.args}
    for node in ast.walk(fn.target.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("seed", "manual_seed") and node.args:
            inside = list(ast.walk(node.args[0]))
            if not any(isinstance(n, (ast.Call, ast.Attribute)) for n in inside) and all(n.id in names for n in inside if isinstance(n, ast.Name)):
                return node
    return None


def _draws(data: Value | None) -> bool:
    for a in alternatives(data) if data is not None else ():
        if a.op == "new" and a.target is not None:
            method = a.target.method("__getitem__")
            if method is None:
                return False
            for node in ast.walk(method.node):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DRAWS and not any(k.arg == "generator" for k in node.keywords):
                    owner = node.func.value
                    root = owner.id if isinstance(owner, ast.Name) else owner.value.id if isinstance(owner, ast.Attribute) and isinstance(owner.value, ast.Name) else ""
                    if root in ("torch", "random", "np", "numpy"):
                        return not any(isinstance(n, ast.Call) and getattr(n.func, "attr", "") in ("manual_seed", "seed", "default_rng") for n in ast.walk(method.node))
    return False
