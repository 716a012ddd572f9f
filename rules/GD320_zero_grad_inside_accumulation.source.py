"""zero_grad between two backwards of one accumulation window, found by running the loop on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.accumulation import Window, windows
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.training import training
from gpudoctor.source.values import same


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """At fault if it happens in each simulated choice with several micro-batches a step."""
    model = module.model
    if not model.methods("zero_grad"):
        return
    for root in model.roots:
        for loop in training(model, root).loops:
            blamed: tuple[Event, Window] | None = None
            for found in windows(loop):
                usable = [w for w in found if len(w.micros) > 1]
                if not usable:
                    continue
                lost = [(e, w) for w in usable for e, before in w.zeroed if _between(w, e, before)]
                if not lost:
                    blamed = None
                    break
                blamed = lost[0]
            if blamed is not None:
                yield at(blamed[0], call=text_of(blamed[0].node), step_line=blamed[1].step.line)


def _between(window: Window, zero: Event, before: int) -> bool:
    """True if the same backward ran before and after it in this window, for the optimizer that steps."""
    if not 0 < before < len(window.micros) or window.micros[before - 1].backward is not window.micros[before].backward:
        return False
    stepped = window.step.args[0] if window.step.fn == "scaler.step" and window.step.args else window.step.recv
    return zero.fn != "optimizer.zero_grad" or same(zero.recv, stepped)
