"""Loaders that feed a DDP training loop and are not split by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.data import rank_aware, trains_on
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.training import rank_arms
from gpudoctor.source.values import Value, alternatives, ancestors, const_of, is_kind, literal, same

_MESSAGE = "under DDP, `{loader}` gives every rank the whole data set"
_FIX = ("At {place}, pass `sampler=DistributedSampler(dataset, shuffle=True)` instead of `shuffle`, and call `sampler.set_epoch(epoch)` "
        "at the top of each epoch.")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """DataLoaders with neither sampler nor a data set that knows its rank, iterated where a DDP model trains."""
    model = module.model
    if not model.calls("torch.nn.parallel.DistributedDataParallel"):
        return
    for event in model.calls("torch.utils.data.DataLoader"):
        loader = event.result
        if loader is None or not _plain(event) or any(True for _ in rank_arms(event)):
            continue
        if _prepared(model, loader) or not trains_on(model, loader) or _optional(model, loader):
            continue
        yield at(event, loader=text_of(event.node), message=_MESSAGE, fix=_FIX)


def _plain(event: Event) -> bool:
    if "**" in event.kwargs or any(a.op == "star" for a in event.args):
        return False
    for position, name in ((3, "sampler"), (4, "batch_sampler")):
        given = event.arg(position, name)
        if given is not None and not (literal(given) and const_of(given, 0) is None):
            return False
    data = event.arg(0, "dataset")
    if data is None or rank_aware(data):
        return False
    return all(a.op in ("call", "new", "list", "tuple", "comp", "bin", "item") and (a.kind or a.op != "call") for a in alternatives(data) if not a.is_const)


def _prepared(model: Any, loader: Value) -> bool:
    return any(same(given, loader) for e in model.methods("prepare", "prepare_data_loader", "setup_dataloaders", "_setup_dataloaders") for given in e.given())


def _optional(model: Any, loader: Value) -> bool:
    """True if the training model may be a bare one: this loader may belong to a run without DDP."""
    for wrap in model.calls("torch.nn.parallel.DistributedDataParallel"):
        arms = [r for r in wrap.within("arm") if r.cond is not None and not any(v.kind in ("flag", "device") for v in ancestors(r.cond, 30))]
        if not arms or any(is_kind(v, "world") for r in arms if r.cond is not None for v in ancestors(r.cond, 30)):
            return False
        made = loader.event
        if made is not None and any(r.cond is a.cond and r.truth == a.truth for a in arms for r in made.within("arm")):
            return False
    return True
