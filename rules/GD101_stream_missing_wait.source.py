"""Tensors written on one stream and used on another with nothing in between that orders them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.streams import apart, ordered, runs_async, sources, stream_at, uses

_MESSAGE = "{consumer} uses `{tensor}`, which {producer} on line {made_line} writes on another stream, and nothing orders the two"
_FIX = ("Before {place}, write `torch.cuda.current_stream().wait_stream(side)` with the stream of line {made_line} (or record an event there and wait for it), "
        "and `record_stream` on the tensor.")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """One finding for each producer, at its first unordered use."""
    model = module.model
    if not model.calls("torch.cuda.stream", "torch.cuda.StreamContext", "torch.Stream"):
        return
    done: set[int] = set()
    for event in model.events:
        if not uses(event):
            continue
        consumer = stream_at(event.region)
        for given in event.given():
            for value, carried in sources(given):
                made = value.event
                if made is None or made.index in done or not runs_async(value):
                    continue
                producer = stream_at(value.region)
                if not apart(producer, consumer) or model.root_of(made) is not model.root_of(event):
                    continue
                if producer is None and not _close(made, event):
                    continue
                done.add(made.index)
                if not ordered(model, made, event, producer, consumer, carried):
                    yield at(event, group=str(made.line), message=_MESSAGE, fix=_FIX, consumer=text_of(event.node), tensor=_name(event, given), producer=text_of(made.node), made_line=made.line)


def _close(made: Event, used: Event) -> bool:
    """True if both happen in the same iteration, the producer first: older results are ordered by what came between."""
    return made.index < used.index and made.loops()[:1] == used.loops()[:1] and bool(made.loops())


def _name(event: Event, given: Any) -> str:
    for node in getattr(event.node, "args", ()):
        if getattr(node, "id", None):
            return str(node.id)
    return text_of(given.node) if given.node is not None else "a tensor"
