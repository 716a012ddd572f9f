"""`.to`, `.cuda`, `.half` on a DDP or on the module inside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.modules import DDP, wrapped
from gpudoctor.source.values import Value, alternatives, is_kind, key, same

_MESSAGE = "`{call}` moves or casts the module after DDP wrapped it on line {wrap_line}"
_FIX = "Move {place} before the DDP call of line {wrap_line}: `model = DDP(net.to(device), device_ids=[local_rank])`."

_MOVES = ("ddp.to", "ddp.cuda", "ddp.cpu", "ddp.half", "ddp.bfloat16", "ddp.double", "module.to", "module.cuda", "module.half", "module.bfloat16", "module.double")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Moves after the wrap that change something: the module was not moved to the same place before."""
    model = module.model
    for wrap in model.calls(DDP):
        inner = wrapped(wrap)
        if inner is None:
            continue
        before = {_place(e) for e in model.calls(*_MOVES) if e.index < wrap.index and e.recv is not None and _same(e.recv, inner)}
        for event in model.calls(*_MOVES):
            if event.index < wrap.index or event.recv is None or model.root_of(event) is not model.root_of(wrap):
                continue
            ours = (event.fn.startswith("ddp") and same(event.recv, wrap.result)) or (event.fn.startswith("module") and same(event.recv, inner))
            if not ours or _place(event) in before or event.fn in ("ddp.cpu",) or any(w.index > event.index for w in model.calls(DDP)):
                continue
            if (event.fn.rpartition(".")[2] in ("to", "cuda") and before & {("cuda",)}) or (event.fn.endswith((".to", ".cuda")) and any(p[0] in ("to", "cuda") for p in before)):
                continue
            if _trains_after(model, event):
                yield at(event, call=text_of(event.node), wrap_line=wrap.line, message=_MESSAGE, fix=_FIX)


def _same(a: Value, b: Value) -> bool:
    return same(a, b) or any(same(x, b) for v in alternatives(a) for x in v.args[:1])


def _place(event: Event) -> tuple[Any, ...]:
    name = event.fn.rpartition(".")[2]
    return (name, *(key(a) for a in event.args[:1])) if name == "to" else (name,)


def _trains_after(model: Any, event: Event) -> bool:
    return any(e.index > event.index and is_kind(e.recv, "ddp") for e in model.calls("ddp.__call__"))
