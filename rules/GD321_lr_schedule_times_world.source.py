"""Schedulers given to accelerator.prepare whose length knows nothing of the number of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.training import hot
from gpudoctor.source.values import Value, alternatives, ancestors, const_of, is_kind

_FIXED = ("ConstantLR", "ExponentialLR", "ReduceLROnPlateau", "get_constant_schedule", "StepLR", "MultiStepLR")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Only schedulers that are stepped in the training step and whose arguments can be traced."""
    model = module.model
    for prepare in model.calls("accelerator.prepare", "accelerator.prepare_scheduler"):
        if prepare.recv is None or not _multiplies(prepare.recv):
            continue
        for given in prepare.args:
            for scheduler in alternatives(given):
                made = scheduler.event
                if scheduler.kind != "scheduler" or made is None or any(w in str(scheduler.name) for w in _FIXED) or _knows(scheduler, prepare) or not _counts(made):
                    continue
                if any(hot(model, e) is not None and e.recv is not None and is_kind(e.recv, "scheduler") for e in model.calls("scheduler.step")):
                    yield at(made, call=text_of(made.node))


def _multiplies(accelerator: Value) -> bool:
    """True if this Accelerator steps schedulers once per process."""
    for a in alternatives(accelerator):
        if a.op != "call" or "**" in a.kwargs or any(k in a.kwargs for k in ("split_batches", "step_scheduler_with_optimizer", "dataloader_config")):
            return False
    return True


def _knows(scheduler: Value, prepare: Event) -> bool:
    for v in ancestors(scheduler, 400, lambda v: v.kind in ("optimizer", "accelerator") or v.op == "new"):
        if v.kind == "world" or v.op == "star" or (v.op == "function" and v.target is not None and not v.args):
            return True
        if v.op == "len" and not any(x.op == "call" and str(x.name).startswith("accelerator.prepare") for x in ancestors(v, 20)):
            return True
        if v.op in ("call", "param", "unknown", "attr", "item") and v.kind == "" and v.op != "attr" and v.uid != scheduler.uid and const_of(v) is None and v.op in ("call", "unknown"):
            return True
    return False


def _counts(made: Event) -> bool:
    """True if a number of steps goes into it."""
    found = [v for a in (*made.args[1:], *made.kwargs.values()) for v in ancestors(a, 60, lambda v: v.kind == "optimizer")]
    return any(isinstance(v.name, int) and not isinstance(v.name, bool) and v.name > 1 for v in found if v.is_const) or any(v.op in ("param", "attr") for v in found)
