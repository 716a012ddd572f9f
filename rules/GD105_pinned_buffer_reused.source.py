"""Host writes into one pinned buffer that an asynchronous copy of the last iteration reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.tensors import on_gpu, pinned
from gpudoctor.source.training import guards
from gpudoctor.source.values import Value, alternatives, const_of

_MESSAGE = "`{write}` refills the pinned buffer while the non_blocking copy of line {copy_line} from the previous iteration may still read it"
_FIX = "Before {place}, wait for an event recorded after the copy of line {copy_line}, or use two buffers in turn, each with its event."

_SYNCS = ("torch.cuda.synchronize", "stream.synchronize", "event.synchronize", "event.query", "tensor.item", "tensor.tolist", "tensor.cpu", "?.synchronize", "?.wait")
_WRITES = ("tensor.copy_", "tensor.fill_", "tensor.zero_", "tensor.normal_", "tensor.uniform_", "setitem", "augassign", "tensor.random_")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Buffers from outside the loop, written and copied in it, with no wait in every iteration."""
    model = module.model
    for copy in model.calls("tensor.to", "tensor.cuda", "tensor.copy_"):
        buffer = _buffer(copy)
        loop = next(iter(copy.loops()), None)
        if buffer is None or loop is None:
            continue
        ours = [a for a in alternatives(buffer) if a.event is not None and a.event.index < loop.first]
        if not ours:
            continue
        for write in model.calls(*_WRITES):
            if not loop.holds(write) or write is copy or write.recv is None or not _into(write.recv, ours):
                continue
            if write.fn == "tensor.copy_" and (source := write.arg(0, "src")) is not None and on_gpu(source):
                continue
            if not any(loop.holds(s) and not any("%" in [v.name for v in (c.args[0],)] for c, _, _ in guards(s, loop) if c.args) for s in model.calls(*_SYNCS)):
                yield at(write, write=text_of(write.node), copy_line=copy.line, message=_MESSAGE, fix=_FIX)
                break


def _buffer(copy: Event) -> Value | None:
    if copy.fn == "tensor.copy_":
        source = copy.arg(0, "src")
        return source if const_of(copy.arg(1, "non_blocking")) is True and source is not None and pinned(source) and copy.recv is not None and on_gpu(copy.recv) else None
    if const_of(copy.kwargs.get("non_blocking")) is True and copy.recv is not None and pinned(copy.recv) and copy.result is not None and on_gpu(copy.result):
        return copy.recv
    return None


def _into(value: Value, ours: list[Value]) -> bool:
    ids = {a.uid for a in ours}
    return any(a.uid in ids or (a.op in ("item", "call") and a.args and any(b.uid in ids for b in alternatives(a.args[0]))) for a in alternatives(value))
