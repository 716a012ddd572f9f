"""Host reads after non_blocking device-to-host copies with no synchronisation between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.tensors import device_named, device_of, on_gpu
from gpudoctor.source.values import Value, alternatives, const_of

_MESSAGE = "`{read}` reads `{tensor}` on the host; the non_blocking copy of line {copy_line} may not be done"
_FIX = "Before {place}, wait for the copy: record an event after line {copy_line} and call `event.synchronize()`, or `torch.cuda.current_stream().synchronize()`."

_SYNCS = ("torch.cuda.synchronize", "stream.synchronize", "event.synchronize", "event.query", "stream.query", "?.synchronize", "?.wait", "event.wait", "torch.accelerator.synchronize")
_READS = ("item", "tolist", "numpy", "__array__")
_BUILTINS = ("builtins.float", "builtins.int", "builtins.print", "builtins.bool", "tensor.format", "tensor.bool", "builtins.sum", "builtins.max", "builtins.min", "torch.save")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """For each such copy, the first read of its target or of a view that follows."""
    model = module.model
    for copy in model.calls("tensor.copy_", "tensor.to", "batch.to", "?.to", "?.copy_"):
        target = _target(copy)
        if target is None:
            continue
        root = model.root_of(copy)
        for event in model.events:
            if not copy.index < event.index < root.last:
                continue
            if event.fn in _SYNCS or (event.fn in ("tensor.item", "tensor.tolist", "tensor.cpu") and event.recv is not None and on_gpu(event.recv)):
                break
            if _reads(event, target):
                yield at(event, read=text_of(event.node), tensor=text_of(getattr(getattr(copy.node, "func", None), "value", None)) if copy.fn.endswith("copy_") else "the copy", copy_line=copy.line, message=_MESSAGE, fix=_FIX)
                break


def _target(copy: Event) -> Value | None:
    if copy.fn.endswith("copy_"):
        source = copy.arg(0, "src", "other")
        flag = copy.arg(1, "non_blocking")
        return copy.recv if const_of(flag) is True and source is not None and on_gpu(source) and copy.recv is not None and device_of(copy.recv) == "cpu" else None
    device = copy.arg(0, "device")
    if const_of(copy.kwargs.get("non_blocking")) is True and device_named(device) == "cpu" and copy.recv is not None and device_of(copy.recv) != "cpu":
        return copy.result
    return None


def _reads(event: Event, target: Value) -> bool:
    last = event.fn.rpartition(".")[2]
    if last in _READS and event.recv is not None:
        return _view(event.recv, target)
    if event.fn in _BUILTINS or event.fn.startswith("numpy."):
        return any(_view(g, target) for g in event.given())
    return event.fn.startswith("array.") and event.recv is not None and _view(event.recv, target)


def _view(value: Value, target: Value, depth: int = 0) -> bool:
    ours = {a.uid for a in alternatives(target)}
    for a in alternatives(value):
        if a.uid in ours:
            return True
        if depth < 5 and a.args and (a.op in ("item", "bin", "neg", "cmp") or (a.op == "call" and str(a.name).startswith(("tensor.", "array.")) and not on_gpu(a))) and _view(a.args[0], target, depth + 1):
            return True
    return False
