"""Fresh layers stored into a module behind the optimizer's back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.modules import belongs
from gpudoctor.source.values import alternatives, ancestors, const_of, is_kind


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Stores between the last optimizer over that module and the training that follows."""
    model = module.model
    optimizers = [e for e in model.events if e.result is not None and e.result.kind == "optimizer" and e.result.event is e]
    if not optimizers:
        return
    for event in model.calls("setattr", "setitem"):
        fresh = [a for a in alternatives(event.args[1]) if a.kind in ("module", "param") and a.op in ("call", "new") and a.event is not None]
        if not fresh or event.recv is None or any(r.kind == "call" and r.value is not None and r.value.target is not None and r.value.target.name == "__init__" for r in event.region.around()):
            continue
        root = model.root_of(event)
        before = [o for o in optimizers if o.index < event.index and model.root_of(o) is root and _over(model, o, event.recv)]
        if not before or not any(s.index > event.index and model.root_of(s) is root for s in model.calls("optimizer.step", "scaler.step")):
            continue
        if any(o.index > event.index and model.root_of(o) is root for o in optimizers) or any(e.index > event.index for e in model.methods("add_param_group")):
            continue
        if all(f.event is not None and f.event.index > before[-1].index for f in fresh):
            yield at(event, name=const_of(event.args[0]), optimizer_line=before[-1].line)


def _over(model: Any, optimizer: Any, owner: Any) -> bool:
    return any(is_kind(v, "module", "ddp") and belongs(model, owner, v) for a in optimizer.args[:1] for v in ancestors(a, 10))
