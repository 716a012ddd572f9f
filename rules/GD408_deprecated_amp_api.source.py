"""Old names of autocast and GradScaler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at, replace
from gpudoctor.source.model import unique

_OLD = {"torch.cuda.amp.GradScaler": ("torch.amp.GradScaler", "cuda"), "torch.cuda.amp.autocast": ("torch.amp.autocast", "cuda"),
        "torch.cpu.amp.autocast": ("torch.amp.autocast", "cpu"), "torch.cpu.amp.GradScaler": ("torch.amp.GradScaler", "cpu")}


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Calls by their resolved name; the fix is offered where `torch` is written out."""
    for event in unique(module.model.calls(*_OLD)):
        new, device = _OLD[event.fn]
        node = event.node
        written = text_of(getattr(node, "func", node))
        arguments = text_of(node)[len(written) + 1:-1]
        rest = f", {arguments}" if arguments else ""
        edit = replace(node, f'{new}("{device}"{rest})') if written == event.fn and "..." not in arguments else None
        yield at(event, old=written, new=f'{new}("{device}"{rest})', edit=edit)
