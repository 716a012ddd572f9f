"""Loops of a known length that is no multiple of the window and flush at their end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.accumulation import windows_of_length
from gpudoctor.source.data import length_of
from gpudoctor.source.events import Region
from gpudoctor.source.evidence import at
from gpudoctor.source.scaling import divisor_of
from gpudoctor.source.simulate import window_of
from gpudoctor.source.training import loss_of, training
from gpudoctor.source.values import const_of


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Runs the loop with its real length; unknown lengths are left alone."""
    model = module.model
    for root in model.roots:
        for loop in training(model, root).loops:
            window, _ = window_of(loop)
            turns = _length(model, loop)
            if window is None or window < 2 or turns is None or not window < turns <= 2000 or turns % window == 0:
                continue
            for found in windows_of_length(loop, turns):
                sizes = [len(w.micros) for w in found]
                if len(sizes) < 2 or sizes[0] != window or not 0 < sizes[-1] < window or sum(sizes) != turns:
                    break
                micro = found[-1].micros[-1]
                loss = loss_of(micro.backward)
                divisor = divisor_of(loss) if loss is not None else None
                if divisor is not None and const_of(divisor.args[1]) == window:
                    place = divisor.event or micro.backward
                    yield at(place, turns=turns, short=sizes[-1], full=window)
                    break


def _length(model: Any, loop: Region) -> int | None:
    return length_of(model, loop.value) if loop.value is not None else None
