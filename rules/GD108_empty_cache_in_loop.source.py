"""empty_cache in the hot part of a training loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at, delete_statement
from gpudoctor.source.model import unique
from gpudoctor.source.training import hot

_MESSAGE = "`{call}` gives cached memory back to the driver in every step"
_FIX = "Delete line {place}, or call it once after a phase that needs much more memory than the next."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Unguarded calls; every N steps or after an out-of-memory error is left alone."""
    model = module.model
    for event in unique(model.calls("torch.cuda.empty_cache", "torch.mps.empty_cache", "torch.accelerator.empty_cache")):
        if hot(model, event) is not None:
            yield at(event, call=text_of(event.node), edit=delete_statement(event.node), message=_MESSAGE, fix=_FIX)
