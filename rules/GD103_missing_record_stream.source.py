"""Tensors that cross from a side stream in every iteration, with neither record_stream nor a wait back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.streams import apart, ordered, orders, runs_async, sources, stream_at, uses
from gpudoctor.source.values import alternatives, is_kind

_MESSAGE = "`{tensor}` is made on a side stream (line {made_line}) and used on another without `record_stream`: its memory may be given away while it is read"
_FIX = "After the wait and before {place}, write `{tensor}.record_stream(torch.cuda.current_stream())`, or let the side stream wait for the using stream before it allocates again."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Only ordered uses: an unordered one is stream-missing-wait."""
    model = module.model
    if not model.calls("torch.cuda.stream", "torch.cuda.StreamContext", "torch.Stream"):
        return
    recorded = {v.uid for e in model.methods("record_stream") if e.recv is not None for v, _ in sources(e.recv)}
    blind = any(e.recv is None or not is_kind(e.recv, "tensor", "batch") for e in model.methods("record_stream"))
    done: set[int] = set()
    for event in model.events:
        if blind or not uses(event):
            continue
        consumer = stream_at(event.region)
        for given in event.given():
            for value, carried in sources(given):
                made = value.event
                if made is None or made.index in done or value.uid in recorded or not runs_async(value):
                    continue
                producer = stream_at(value.region)
                if producer is None or not apart(producer, consumer) or not made.loops() or model.root_of(made) is not model.root_of(event):
                    continue
                done.add(made.index)
                loop = made.loops()[0]
                back = any(loop.holds(w) and (w.fn == "torch.cuda.synchronize" or (w.fn == "stream.wait_stream" and w.recv is not None and not apart(w.recv, producer) and orders(
                    w, consumer, producer))) for w in model.calls("torch.cuda.synchronize", "stream.wait_stream"))
                kept = any(e.fn in ("list.append", "setitem") and loop.holds(e) for e in model.calls("list.append", "setitem"))
                if not back and not kept and ordered(model, made, event, producer, consumer, carried) and not _host_wait(model, loop):
                    yield at(event, group=str(made.line), tensor=_name(given), made_line=made.line, message=_MESSAGE, fix=_FIX)


def _host_wait(model: Any, loop: Any) -> bool:
    """True if each iteration waits for the GPU anyway."""
    return any(loop.holds(e) and not any(r.kind == "arm" for r in e.region.around() if loop in list(r.around())[1:]) for e in model.calls("stream.synchronize", "event.synchronize", "tensor.item"))


def _name(value: Any) -> str:
    for v in alternatives(value):
        if v.node is not None and getattr(v.node, "id", None):
            return str(v.node.id)
    return "the tensor"
