"""The sync flag set between a forward and its backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.training import BACKWARDS, loss_of
from gpudoctor.source.values import ancestors, const_of, same


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Stores of the flag on a DDP whose forward came just before and whose backward comes after."""
    model = module.model
    flags = [e for e in model.calls("setattr") if const_of(e.args[0]) in ("require_backward_grad_sync", "require_forward_param_sync")]
    for flag in flags:
        if const_of(flag.args[0]) != "require_backward_grad_sync":
            continue
        for backward in model.calls(*BACKWARDS):
            loss = loss_of(backward)
            if backward.index < flag.index or loss is None:
                continue
            forward = next((v.event for v in ancestors(loss, 800) if v.op == "call" and v.name == "ddp.__call__" and v.event is not None
                            and same(v.args[0], flag.recv)), None)
            if forward is not None and forward.index < flag.index and not _set_before(flags, forward.index, flag):
                yield at(flag, forward_line=forward.line, backward_line=backward.line)
                break


def _set_before(flags: list[Any], index: int, flag: Any) -> bool:
    """True if the same iteration set the flag before the forward too; then this store belongs to what follows."""
    return any(f is not flag and f.index < index and f.loops()[:1] == flag.loops()[:1] and f.loops() for f in flags)
