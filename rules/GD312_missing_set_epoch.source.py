"""Epoch loops over a distributed sampler that is never told the epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.data import loops_over, sampler_of
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at_node, insert_first
from gpudoctor.source.values import alternatives, const_of, is_kind, same

_MESSAGE = "the sampler of line {sampler_line} is not told the epoch: each epoch repeats the same order"
_FIX = "Write `{sampler}.set_epoch(epoch)` as the first line of the loop at {place}."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Loaders with a shuffling DistributedSampler that are drawn from in a loop inside a loop."""
    model = module.model
    told = model.methods("set_epoch")
    for event in model.calls("torch.utils.data.DataLoader"):
        sampler = sampler_of(event)
        if sampler is None or event.result is None:
            continue
        made = next((a for a in alternatives(sampler) if a.op == "call" and a.name == "torch.utils.data.DistributedSampler" and a.event is not None), None)
        if made is None or const_of(made.event.arg(3, "shuffle"), True) is False:
            continue
        if any(e.recv is None or same(e.recv, sampler) or same(e.recv, event.result) or not is_kind(e.recv, "distsampler", "loader") for e in told):
            continue
        if any(same(given, event.result) for e in model.methods("prepare", "prepare_data_loader", "setup_dataloaders", "fit") for given in e.given()):
            continue
        for loop in loops_over(model, event.result):
            outer = next((r for r in loop.parent.around() if r.kind == "loop"), None) if loop.parent is not None else None
            if outer is None or outer.node is None or _once(outer) or outer.holds(event):
                continue
            name, counter = text_of(getattr(made.node, "func", None)), getattr(getattr(outer.node, "target", None), "id", "")
            name = _bound_name(event) or name
            edit = insert_first(outer.node, f"{name}.set_epoch({counter})") if counter and _bound_name(event) and outer.module is event.module else None
            yield at_node(outer.module, outer.node, sampler_line=made.event.line, sampler=name, message=_MESSAGE, fix=_FIX, edit=edit)
            break


def _bound_name(event: Any) -> str:
    for keyword in getattr(event.node, "keywords", ()):
        if keyword.arg == "sampler" and getattr(keyword.value, "id", None):
            return str(keyword.value.id)
    return ""


def _once(loop: Any) -> bool:
    source = loop.value
    return source is not None and source.op == "call" and source.name == "builtins.range" and len(source.args) == 1 and const_of(source.args[0]) == 1
