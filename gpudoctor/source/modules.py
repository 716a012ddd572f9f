"""What a wrapped module consists of: its layers, and how it was moved and wrapped."""

from __future__ import annotations

from collections.abc import Iterator

from gpudoctor.source.events import Event
from gpudoctor.source.model import Model
from gpudoctor.source.values import Value, alternatives, is_kind

DDP = "torch.nn.parallel.DistributedDataParallel"


def parts(model: Model, value: Value, limit: int = 400) -> Iterator[Value]:
    """The module and the modules inside it, as far as its construction can be seen."""
    seen: set[int] = set()
    stack = [value]
    while stack and len(seen) < limit:
        for v in alternatives(stack.pop()):
            if v.uid in seen:
                continue
            seen.add(v.uid)
            yield v
            if v.op in ("call", "tuple", "list", "dict", "star", "wrap", "comp", "or") and v.kind in ("module", "ddp", "", "lightning"):
                stack += v.args
                stack += v.kwargs.values()
            if v.op == "new":
                stack += [a for a in model.attributes(v).values() if is_kind(a, "module", "ddp") or a.op in ("list", "call", "comp")]


def wrapped(wrap: Event) -> Value | None:
    """The module that a DDP call wraps."""
    return wrap.arg(0, "module")


def inner_ids(model: Model) -> set[int]:
    """Identities of modules that were wrapped."""
    return {a.uid for w in model.calls(DDP) if (m := wrapped(w)) is not None for a in alternatives(m) if not a.is_const}


def belongs(model: Model, value: Value | None, owner: Value) -> bool:
    """True if `value` is the module, or a part of it."""
    if value is None:
        return False
    ours = {v.uid for v in alternatives(value)}
    return any(p.uid in ours for p in parts(model, owner))
