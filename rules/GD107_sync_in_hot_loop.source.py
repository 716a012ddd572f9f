"""Host synchronisations that happen in each step of a training loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, text_of
from gpudoctor.source.evidence import at
from gpudoctor.source.model import unique
from gpudoctor.source.tensors import on_gpu
from gpudoctor.source.training import hot, loss_of, training
from gpudoctor.source.values import Value, ancestors, is_kind

_READS = ("tensor.item", "tensor.tolist", "tensor.cpu", "tensor.numpy", "batch.item", "?.item", "?.tolist", "tensor.format", "tensor.bool",
          "builtins.float", "builtins.int", "builtins.bool", "builtins.print")
_MESSAGE = "`{what}` makes the host wait for the GPU in every step"
_FIX = "At {place}, keep the value on the GPU (`total += loss.detach()`) and read it every N steps, behind a guard such as `if step % 100 == 0`."
_FIX_OF_WAIT = "At {place}, remove `{what}`: work of one stream runs in order, streams wait for each other with `stream.wait_event(event)`, and `torch.cuda.Event(enable_timing=True)` measures without waiting in each step."
_WAITS = ("torch.cuda.synchronize", "scaler.get_scale", "stream.synchronize", "event.synchronize", "torch.accelerator.synchronize")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Reads of tensors that come from the GPU, and explicit waits, in the hot part of a training loop."""
    model = module.model
    if not model.calls("tensor.backward", "accelerator.backward", "fabric.backward", "?.backward") and not any(
            r.value is not None and r.value.kind == "framework" for root in model.roots for r in root.regions()):
        return
    found = [event for event in model.calls(*_WAITS) if hot(model, event) is not None and not _timed(event)]
    for event in model.calls(*_READS):
        value = event.recv if event.recv is not None else event.args[0] if event.args else None
        if event.fn == "builtins.print":
            value = next((a for a in event.args if is_kind(a, "tensor")), None)
        if value is None or (not is_kind(value, "tensor", "grad") and not (event.fn == "?.item" and _came_from_loss(model, event, value))):
            continue
        if (not on_gpu(value) and not _came_from_loss(model, event, value)) or _copied_first(value):
            continue
        if hot(model, event) is not None:
            found.append(event)
    seen: set[tuple[str, int]] = set()
    for event in unique(sorted(found, key=lambda e: e.index)):
        place = (event.module.path, event.line)
        if place not in seen:
            seen.add(place)
            yield at(event, what=text_of(event.node), message=_MESSAGE, fix=_FIX_OF_WAIT if str(event.fn).endswith(".synchronize") else _FIX)


def _came_from_loss(model: Any, event: Event, value: Value) -> bool:
    losses = {a.uid for b in training(model, model.root_of(event)).backwards if (loss := loss_of(b)) is not None for a in ancestors(loss, 6)}
    return any(a.uid in losses for a in ancestors(value, 6))


def _copied_first(value: Value) -> bool:
    """True for `x.cpu().item()`: the copy is the wait, and is found by itself."""
    return value.op == "call" and str(value.name).rpartition(".")[2] in ("cpu", "numpy", "tolist")


def _timed(event: Event) -> bool:
    """True inside `if profile:` and the like: a guard that does not change from step to step was asked for by the user."""
    return any(r.kind == "arm" and r.cond is not None and not is_kind(r.cond, "flag") for r in event.region.around() if r.kind == "arm")
