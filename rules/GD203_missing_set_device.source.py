"""NCCL programs that move to "cuda" with no index and never choose a device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.values import Value, alternatives, const_of

_MESSAGE = "{what}, and no rank chooses its own GPU (`torch.cuda.set_device`): all ranks use GPU 0"
_FIX = "Directly after reading the rank, before {place}, write `torch.cuda.set_device(local_rank)`."

_CHOOSE = ("torch.cuda.set_device", "torch.cuda.device", "torch.accelerator.set_device_index", "torch.npu.set_device", "torch.set_default_device", "accelerate.Accelerator",
           "lightning.fabric.Fabric", "accelerate.PartialState", "deepspeed.init_distributed", "deepspeed.initialize", "torch.distributed.device_mesh.init_device_mesh")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """The first move to the current CUDA device in a program that initialises NCCL and leaves the choice open."""
    model = module.model
    starts = [e for e in model.calls("torch.distributed.init_process_group") if _nccl(e)]
    if not starts or model.calls(*_CHOOSE) or any("CUDA_VISIBLE_DEVICES" in str(const_of(e.args[0])) for e in model.calls("setitem") if e.args):
        return
    if any(e.kwargs.get("device_id") is not None or "**" in e.kwargs for e in starts) or not model.calls("torch.nn.parallel.DistributedDataParallel"):
        return
    root = model.root_of(starts[0])
    for event in model.calls("module.cuda", "module.to", "tensor.cuda", "tensor.to", "batch.cuda", "batch.to"):
        if model.root_of(event) is root and event.index > starts[0].index and _bare(event):
            yield at(event, what=f"`{text_of(event.node)}` means the current GPU", message=_MESSAGE, fix=_FIX)
            return


def _nccl(event: Event) -> bool:
    backend = event.arg(0, "backend")
    return backend is not None and any(a.is_const and isinstance(a.name, str) and "nccl" in a.name for a in alternatives(backend))


def _bare(event: Event) -> bool:
    if event.fn.endswith(".cuda"):
        return not event.args and not event.kwargs.keys() - {"non_blocking"}
    device = event.arg(0, "device")
    return device is not None and _plain_cuda(device)


def _plain_cuda(device: Value) -> bool:
    found = alternatives(device)
    return any((a.is_const and a.name == "cuda") or (a.op == "call" and a.name == "torch.device" and len(a.args) == 1 and not a.kwargs and _plain_cuda(a.args[0])) for a in found)
