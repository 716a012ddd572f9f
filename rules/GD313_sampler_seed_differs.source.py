"""Seeds of distributed samplers that depend on the rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.values import depends_on


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """The argument `seed` of DistributedSampler."""
    for event in module.model.calls("torch.utils.data.DistributedSampler"):
        seed = event.arg(4, "seed")
        if seed is not None and depends_on(seed, lambda v: v.kind == "rank", 60):
            yield at(event, seed=text_of(next((k.value for k in getattr(event.node, "keywords", ()) if k.arg == "seed"), None) or seed.node))
