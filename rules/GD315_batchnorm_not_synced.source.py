"""DDP(broadcast_buffers=False) over BatchNorm layers that were not converted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence, Severity
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.modules import DDP, parts, wrapped
from gpudoctor.source.values import Value, const_of, same

_MESSAGE = "the module that DDP wraps has BatchNorm layers (line {layer_line}) and {why}: {effect}"
_FIX = "Before {place}, write `net = nn.SyncBatchNorm.convert_sync_batchnorm(net)`, or leave `broadcast_buffers` at True."
_BATCH_NORM = re.compile(r"torch\.nn\.(Lazy)?BatchNorm[123]d$")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """A warning where running statistics drift apart for sure; a note where a rank's batch is known to be tiny."""
    model = module.model
    for wrap in model.calls(DDP):
        inner = wrapped(wrap)
        if inner is None:
            continue
        found = list(parts(model, inner))
        layer = next((v for v in found if v.op == "call" and _BATCH_NORM.match(str(v.name)) and _tracks(v)), None)
        if layer is None or any(v.op == "call" and "sync_batchnorm" in str(v.name) for v in found) or any(
                e.fn.endswith("convert_sync_batchnorm") and e.args and same(e.args[0], inner) for e in model.calls("torch.nn.SyncBatchNorm.convert_sync_batchnorm")):
            continue
        line = getattr(layer.node, "lineno", 0)
        if const_of(wrap.kwargs.get("broadcast_buffers")) is False:
            yield at(wrap, layer_line=line, why="buffers are not broadcast", effect="running statistics differ between ranks", message=_MESSAGE, fix=_FIX)
            continue
        sizes = [n for e in model.calls("torch.utils.data.DataLoader") if isinstance(n := const_of(e.arg(1, "batch_size")), int) and n <= params["small_batch"] and n > 0
                 and e.index > 0 and e.kwargs.get("sampler") is not None]
        if sizes:
            yield at(wrap, severity=Severity.note, layer_line=line, why=f"a rank's batch has {sizes[0]} samples", effect="its statistics are noisy", message=_MESSAGE, fix=_FIX)


def _tracks(layer: Value) -> bool:
    return const_of(layer.kwargs.get("track_running_stats"), True) is not False
