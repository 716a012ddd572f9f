"""Barriers of NCCL groups that nobody told which GPU to use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.values import alternatives, const_of

_CHOOSE = ("torch.cuda.set_device", "torch.cuda.device", "torch.accelerator.set_device_index", "torch.set_default_device", "accelerate.Accelerator", "lightning.fabric.Fabric",
           "torch.npu.set_device", "accelerate.PartialState", "deepspeed.init_distributed")
_MESSAGE = "`{call}` does not know its GPU: the group has no `device_id` and no rank chose a device"
_FIX = 'Before {place}, write `torch.cuda.set_device(local_rank)`, and pass `device_id=torch.device("cuda", local_rank)` to `init_process_group`.'


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """The first barrier after an init with NCCL for sure, and no choice of a device before it."""
    model = module.model
    for start in model.calls("torch.distributed.init_process_group"):
        backend = start.arg(0, "backend")
        sure = backend is not None and all(a.is_const and a.name == "nccl" for a in alternatives(backend))
        if not sure or start.kwargs.get("device_id") is not None or "**" in start.kwargs:
            continue
        root = model.root_of(start)
        for event in model.calls("collective.barrier"):
            if event.index < start.index or model.root_of(event) is not root:
                continue
            if event.kwargs.get("device_ids") is not None or (event.kwargs.get("group") is not None and const_of(event.kwargs["group"], 0) is not None):
                continue
            if not any(e.index < event.index for e in model.calls(*_CHOOSE)) and "CUDA_VISIBLE_DEVICES" not in module.text:
                yield at(event, call=text_of(event.node), message=_MESSAGE, fix=_FIX)
            break
