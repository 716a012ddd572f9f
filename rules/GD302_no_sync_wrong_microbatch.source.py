"""Accumulation windows whose last micro-batch is not synchronised, found by running the loop on paper."""

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
    """A loop is at fault if in each simulated choice some step follows a micro-batch whose forward ran under no_sync."""
    model = module.model
    for root in model.roots:
        for loop in training(model, root).loops:
            blamed = None
            for found in windows(loop):
                usable = [w for w in found if w.micros and any(m.quiet_by is not None for m in w.micros)]
                if not usable:
                    continue
                wrong = [w for w in usable if w.micros[-1].quiet_by is not None and w.micros[-1].backward_reached]
                if not wrong:
                    blamed = None
                    break
                blamed = wrong[0]
            if blamed is not None and blamed.micros[-1].quiet_by is not None:
                yield at(blamed.micros[-1].quiet_by, step=text_of(blamed.step.node), step_line=blamed.step.line)
