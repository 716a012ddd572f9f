"""NCCL variables set too late, and socket settings in programs that stay on one host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence, Severity
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.model import Model
from gpudoctor.source.values import depends_on
from gpudoctor.source.variables import variables_set

_MESSAGE = "`{name}` has no effect here: {why}"
_FIX = "Delete the setting at {place}, or set it before `init_process_group`."
_SOCKET = ("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS", "NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """After the process group exists a variable is too late; with processes spawned on the local GPUs sockets are not used."""
    model = module.model
    starts = model.calls("torch.distributed.init_process_group", "accelerate.Accelerator")
    for event, name, _ in variables_set(model):
        if not name.startswith("NCCL_"):
            continue
        late = next((s for s in starts if s.index < event.index and model.root_of(s) is model.root_of(event) and not s.loops()), None)
        if late is not None:
            yield at(event, severity=Severity.warning, name=name, why=f"NCCL has read its variables since line {late.line}", message=_MESSAGE, fix=_FIX)
        elif name in _SOCKET and _one_host(model):
            yield at(event, severity=Severity.note, name=name, why="the program spawns its ranks on this host's GPUs, where NCCL uses P2P or shared memory", message=_MESSAGE, fix=_FIX)


def _one_host(model: Model) -> bool:
    return any((n := e.kwargs.get("nprocs", e.args[2] if len(e.args) > 2 else None)) is not None and depends_on(n, lambda v: v.name == "torch.cuda.device_count", 20)
               for e in model.calls("torch.multiprocessing.spawn"))
