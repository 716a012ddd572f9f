"""Copies to the GPU, in the hot part of a training loop, of batches from a loader that does not pin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.model import unique
from gpudoctor.source.tensors import device_of
from gpudoctor.source.training import hot
from gpudoctor.source.values import alternatives, ancestors, const_of

_MESSAGE = "`{copy}` copies batches from pageable host memory in every step: the loader of line {loader_line} does not pin them"
_FIX = "Pass `pin_memory=True` to the loader of line {loader_line}, and `non_blocking=True` at {place}."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """The first copy for each loader, and only where the device may be a GPU."""
    model = module.model
    done: set[int] = set()
    for event in unique(model.calls("batch.to", "batch.cuda", "tensor.to", "tensor.cuda")):
        if event.recv is None or event.result is None or (device_of(event.result) != "cuda" and "cuda" not in module.text) or hot(model, event) is None:
            continue
        if device_of(event.result) not in ("cuda", "maybe"):
            continue
        for v in ancestors(event.recv, 12, lambda v: v.op == "call"):
            for loader in alternatives(v):
                made = loader.event
                if loader.kind != "loader" or made is None or loader.name != "torch.utils.data.DataLoader" or made.index in done or "**" in made.kwargs:
                    continue
                done.add(made.index)
                pin = made.arg(7, "pin_memory")
                if (pin is None or const_of(pin, True) is False) and made.kwargs.get("collate_fn") is None:
                    yield at(event, copy=text_of(event.node), loader_line=made.line, message=_MESSAGE, fix=_FIX)
