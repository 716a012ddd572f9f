"""What names of kernels, calls and ranges mean."""

from __future__ import annotations

import re

_COMM = re.compile(
    r"(void )?(nccl(Kernel|DevKernel|SymDevKernel|SymkDevKernel|SymKernel|Dev)|rccl\w*Kernel|msccl|oneccl|gloo\w*Kernel|.*\b("
    r"nvshmem\w*|cross_device_reduce\w*|(two|one)_shot_all_reduce\w*|(two|one)ShotAllReduce\w*|multimem_(all|one|reduce)\w*|"
    r"allreduce_fusion_kernel\w*|userbuffers_\w+)\b)"
)
_VERSION = re.compile(r"(_v\d+|_ptsz|_ptds)+$")
_SYNC = {
    "StreamSynchronize": "stream", "DeviceSynchronize": "device", "ThreadSynchronize": "device", "CtxSynchronize": "device",
    "EventSynchronize": "event", "StreamWaitEvent": "stream_wait_event", "EventQuery": "event_query", "StreamQuery": "event_query",
}
_API = re.compile(r"(?:cuda|cu|hip)(\w+)$")
_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages|lib/python3[^/]*|torch)/|^<|^importlib")
OPERATOR_MARKS = (", seq = ", ", op_id = ")


def is_comm(kernel: str) -> bool:
    """True if a kernel of that name moves data between ranks (NCCL, RCCL, MSCCL, oneCCL, NVSHMEM, custom all-reduces)."""
    return _COMM.match(kernel) is not None


def plain_api(name: str) -> str:
    """A call's name without version and per-thread suffixes: `cudaStreamSynchronize_ptsz_v7000` → `cudaStreamSynchronize`."""
    return _VERSION.sub("", name)


def sync_kind(api: str) -> str | None:
    """The kind of synchronisation that a call (without suffixes) does, None if it is no such call."""
    match = _API.match(api)
    return _SYNC.get(match[1]) if match else None


def records_event(api: str) -> bool:
    """True for runtime and driver calls that record an event."""
    match = _API.match(api)
    return match is not None and match[1] in ("EventRecord", "EventRecordWithFlags")


def is_library(file: str) -> bool:
    """True for a source file of Python itself, of torch or of another installed package."""
    return _LIBRARY.search(file) is not None


def plain_operator(name: str) -> str:
    """A range's name without what torch's emit_nvtx puts behind an operator's name."""
    for mark in OPERATOR_MARKS:
        name = name.split(mark, 1)[0]
    return name
