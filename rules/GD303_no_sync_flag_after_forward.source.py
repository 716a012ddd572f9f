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
            forwards = [v.event for v in ancestors(loss, 800) if v.op == "call" and v.name == "ddp.__call__" and v.event is not None and same(v.args[0], flag.recv)]
            last = max(forwards, key=lambda e: e.index, default=None)
            if last is not None and last.index < flag.index:
                yield at(flag, forward_line=last.line, backward_line=backward.line)
                break
