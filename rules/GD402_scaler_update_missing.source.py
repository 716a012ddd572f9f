"""Paths through an iteration that use a scaler and do not update it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, Region, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.paths import paths
from gpudoctor.source.training import guards, training
from gpudoctor.source.values import ancestors

_WANTED = ("scaler.step", "scaler.unscale_", "scaler.update")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Looks at each training loop's iteration; leaving the loop or raising needs no update."""
    model = module.model
    if not model.calls("scaler.step", "scaler.unscale_"):
        return
    for root in model.roots:
        for loop in training(model, root).loops:
            if not any(e.fn == "scaler.step" for e in loop.events()):
                continue
            for path in paths(loop, lambda e: e.fn in _WANTED):
                last = _open_use(path.events) if path.end in ("", "continue") else None
                if last is not None and not _too_early(last, loop):
                    update = next((e for e in loop.events() if e.fn == "scaler.update"), None)
                    yield at(update or last, used=text_of(last.node), used_line=last.line)
                    break


def _too_early(use: Event, loop: Region) -> bool:
    """True for an unscale_ outside the accumulation window's condition: that is unscale-inside-accumulation."""
    updates = [e for e in loop.events() if e.fn == "scaler.update"]
    return use.fn == "scaler.unscale_" and bool(updates) and all(
        any(arm is not None and not arm.holds(use) and any(v.op == "bin" and v.name == "%" for v in ancestors(cond, 40)) for cond, _, arm in guards(u, loop)) for u in updates)


def _open_use(events: tuple[Event, ...]) -> Event | None:
    """The last use of a scaler on the path that no update follows."""
    used: Event | None = None
    for event in events:
        if event.fn == "scaler.update":
            used = None
        elif used is None:
            used = event
    return used
