"""Checkpoints that all ranks of a distributed program load without saying where to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at, replace
from gpudoctor.source.training import distributed, rank_arms
from gpudoctor.source.values import ancestors, same

_RANKS = ("torch.nn.parallel.DistributedDataParallel", "torch.distributed.init_process_group", "torch.distributed.fsdp.FullyShardedDataParallel")

_MESSAGE = "`{call}` puts each rank's copy of a checkpoint where it was saved, usually GPU 0"
_FIX = 'At {place}, pass `map_location="cpu"` (or the rank\'s own device).'


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Only loads whose content reaches load_state_dict, outside code that a single rank runs."""
    model = module.model
    loads = [e for e in model.calls("torch.load") if e.arg(1, "map_location") is None and "**" not in e.kwargs and e.result is not None]
    if not loads or not distributed(model):
        return
    states = [e for e in model.methods("load_state_dict") if e.args or e.kwargs]
    for event in loads:
        root = model.root_of(event)
        if not any(root.first <= e.index < root.last for e in model.calls(*_RANKS)) or any(True for _ in rank_arms(event)):
            continue
        if any(r.kind == "with" and r.value is not None and r.value.kind in ("device", "devicectx") for r in event.region.around()):
            continue
        if any(same(v, event.result) for s in states if s.index > event.index for g in s.given() for v in ancestors(g, 20)):
            text = text_of(event.node)
            edit = replace(event.node, text[:-1] + ', map_location="cpu")') if text.endswith(")") and "..." not in text and not text.endswith("()") else None
            yield at(event, call=text, edit=edit, message=_MESSAGE, fix=_FIX)
