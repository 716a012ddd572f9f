"""Collectives in an arm that only some ranks enter, with no partner in another."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, Region, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.library import COLLECTIVES
from gpudoctor.source.model import unique
from gpudoctor.source.training import by_rank, guards, loss_of
from gpudoctor.source.values import Value, ancestors, const_of, key

_NAMES = (*(f"collective.{c}" for c in sorted(COLLECTIVES)), "accelerator.wait_for_everyone", "accelerator.gather", "accelerator.gather_for_metrics", "accelerator.reduce",
          "fabric.barrier", "fabric.all_gather", "fabric.all_reduce", "torch.distributed.new_group", "fsdp.state_dict")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Sub-groups and pairs of guarded calls (one for rank 0, one for the rest) are left alone."""
    model = module.model
    events = [e for e in model.calls(*_NAMES, "tensor.backward") if e.fn != "tensor.backward" or _ddp_loss(e)]
    guarded: list[tuple[Event, Value, bool]] = []
    for event in events:
        if event.fn.startswith("collective.") and event.kwargs.get("group") is not None and const_of(event.kwargs["group"], 0) is not None:
            continue
        found = _guard(event)
        if found is not None:
            guarded.append((event, *found))
    for event in unique([g[0] for g in guarded]):
        cond, truth = next((c, t) for e, c, t in guarded if e is event)
        partners = [e for e, c, t in guarded if e.fn == event.fn and e.node is not event.node and not (key(c) == key(cond) and t == truth)]
        arm = next((r for r in event.region.around() if r.kind == "arm" and r.cond is cond), None)
        if partners or (arm is not None and _other_arm(arm, event)):
            continue
        guard = text_of(cond.node) if cond.node is not None else "the rank's condition"
        yield at(event, call=text_of(event.node), guard=guard if truth else f"not ({guard})", guard_line=getattr(cond.node, "lineno", 0))


def _guard(event: Event) -> tuple[Value, bool] | None:
    root = event.region
    while root.parent is not None:
        root = root.parent
    for cond, truth, arm in guards(event, root):
        if by_rank(cond) and (arm is not None or event.fn != "tensor.backward") and _decisive(cond, truth):
            return cond, truth
    return None


def _decisive(cond: Value, truth: bool) -> bool:
    """True if ranks part ways here; `rank < 0` and friends tell whether the run is distributed at all."""
    for v in ancestors(cond, 40):
        if v.op == "cmp" and len(v.args) == 2:
            if v.name in ("<", "<=", ">", ">=") and not v.args[1].is_const:
                return False
            number = const_of(v.args[1])
            if isinstance(number, int) and (number < 0 or (v.name in (">=",) and number == 0) or (v.name == ">" and number == -1)):
                return False
            if v.args[1].op in ("list", "tuple") and any(isinstance(n := const_of(a), int) and n < 0 for a in v.args[1].args):
                return _with_negative(v, truth)
            if v.kind != "rank" and (v.args[1].kind == "world" or v.name in ("is", "is not")):
                return False
    return True


def _with_negative(v: Value, truth: bool) -> bool:
    """`rank in [-1, 0]` is true without distribution and on rank 0: other ranks do not enter."""
    return any(const_of(a) == 0 for a in v.args[1].args)


def _other_arm(arm: Region, event: Event) -> bool:
    """True if the opposite arm calls the same, in a nested function perhaps."""
    branch = arm.parent
    other_body = (getattr(arm.node, "orelse", []) if arm.truth else getattr(arm.node, "body", [])) if isinstance(arm.node, ast.If) else []
    if any(isinstance(n, ast.Attribute) and n.attr == event.fn.rpartition(".")[2] for s in other_body for n in ast.walk(s)):
        return True
    return branch is not None and any(e.fn == event.fn for other in branch.children if isinstance(other, Region) and other is not arm for e in other.events())


def _ddp_loss(event: Event) -> bool:
    loss = loss_of(event)
    return loss is not None and any(v.op == "call" and v.name == "ddp.__call__" for v in ancestors(loss, 400))
