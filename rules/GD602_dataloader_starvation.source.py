"""Training loaders without workers over data sets that decode, read or wait per sample."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.data import loops_over
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.training import training
from gpudoctor.source.values import Value, alternatives, const_of

_MESSAGE = "`{loader}` has no workers and its data set does slow work ({work}) for each sample: the GPU waits for it"
_FIX = "At {place}, pass `num_workers=4` (about the CPU cores per GPU), `persistent_workers=True` and `pin_memory=True`."
_SLOW = {"sleep", "imread", "imdecode", "open", "load_audio", "decode", "read_video", "decode_jpeg", "read_image", "librosa", "get", "VideoReader", "read_csv", "read_parquet",
         "urlopen", "decode_image", "decode_png", "loadtxt", "resample"}


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Loaders that feed a training loop."""
    model = module.model
    for event in model.calls("torch.utils.data.DataLoader"):
        workers = event.arg(5, "num_workers")
        if "**" in event.kwargs or event.result is None or (workers is not None and const_of(workers) != 0):
            continue
        work = _slow(event.arg(0, "dataset"))
        if work and any(any(loop.holds(b) for b in training(model, model.root_of(event)).backwards) for loop in loops_over(model, event.result)):
            yield at(event, loader=text_of(event.node), work=work, message=_MESSAGE, fix=_FIX)


def _slow(data: Value | None) -> str:
    for a in alternatives(data) if data is not None else ():
        if a.op == "call" and str(a.name) in ("torchvision.datasets.ImageFolder", "torchvision.datasets.ImageNet", "torchvision.datasets.CocoDetection"):
            return f"{str(a.name).rpartition('.')[2]} decodes images"
        if a.op != "new" or a.target is None or (method := a.target.method("__getitem__")) is None:
            continue
        helpers = {m: f for c in a.target.ancestry() for m, f in c.methods.items()}
        names = {n.func.attr for n in ast.walk(method.node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
        for node in [method.node, *(helpers[n] for n in names & helpers.keys())]:
            for call in ast.walk(node):
                if isinstance(call, ast.Call):
                    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
                    owner = getattr(getattr(call.func, "value", None), "id", "")
                    if name in _SLOW and not (name == "get" and owner != "requests") and not (name == "decode" and not owner):
                        return text_of(call.func)
    return ""
