"""Streams created inside a training or epoch loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.model import unique
from gpudoctor.source.streams import created
from gpudoctor.source.training import guards, training

_MESSAGE = "`{call}` makes a new stream in every iteration of the loop on line {loop_line}"
_FIX = "Make the stream once, before the loop on line {loop_line}, and use it again at {place}."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Loops that train, and loops around them; a guard such as `if stream is None` makes it lazy, not repeated."""
    model = module.model
    for event in unique(created(model)):
        loops = training(model, model.root_of(event)).loops
        for loop in event.loops():
            if loop in loops or any(inner in loops for inner in loop.regions()) or _uses_gpu(loop):
                if not any(True for _ in guards(event, loop)) and loop.node is not None and not type(loop.node).__name__.endswith("Comp"):
                    yield at(event, call=text_of(event.node), loop_line=getattr(loop.node, "lineno", 0), message=_MESSAGE, fix=_FIX)
                break


def _uses_gpu(loop: Any) -> bool:
    """True for a loop that iterates many times and runs a module or enters its stream in each."""
    source = loop.value
    short = source is not None and source.op == "call" and source.name == "builtins.range" and all(a.is_const and isinstance(a.name, int) and a.name <= 16 for a in source.args)
    return not short and any(e.fn in ("module.__call__", "ddp.__call__") for e in loop.events()) and any(e.fn == "torch.cuda.stream" for e in loop.events())
