"""unscale_ followed by another backward before the step, found by running the loop on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.accumulation import windows
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.training import training


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """At fault if in each simulated choice with several micro-batches a step some unscale_ comes too early."""
    model = module.model
    if not model.calls("scaler.unscale_"):
        return
    for root in model.roots:
        for loop in training(model, root).loops:
            blamed = None
            for found in windows(loop):
                usable = [w for w in found if len(w.micros) > 1 and w.unscaled]
                if not usable:
                    continue
                early = [(e, w) for w in usable for e, before in w.unscaled if 0 < before < len(w.micros) and w.micros[before].backward is w.micros[before - 1].backward]
                if not early:
                    blamed = None
                    break
                blamed = early[0]
            if blamed is not None:
                yield at(blamed[0], call=text_of(blamed[0].node), step_line=blamed[1].step.line)
