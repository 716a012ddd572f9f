"""Constructions of nn.DataParallel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.model import unique
from gpudoctor.source.values import const_of


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """All but those with a single device id."""
    for event in unique(module.model.calls("torch.nn.DataParallel")):
        ids = event.arg(1, "device_ids")
        if not (ids is not None and ids.op in ("list", "tuple") and len(ids.args) == 1) and const_of(ids, 0) != []:
            yield at(event, call=text_of(event.node))
