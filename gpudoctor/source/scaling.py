"""How a loss came about: means, sums, divisions on its way, and gradients that are scaled later."""

from __future__ import annotations

from gpudoctor.source.events import Event, Region
from gpudoctor.source.model import Model
from gpudoctor.source.values import Value, alternatives, ancestors, const_of, is_kind

_FORWARDS = ("ddp.__call__", "module.__call__", "fsdp.__call__", "dp.__call__", "engine.__call__")
_LOSS_WORDS = ("loss", "Loss", "cross_entropy", "nll", "kl_div", "BCE", "Criterion")


def is_mean_loss(value: Value) -> bool:
    """True if every alternative is a mean, directly or divided by a plain number."""
    found = alternatives(value)
    return bool(found) and all(_mean(v, 0) for v in found)


def _mean(v: Value, depth: int) -> bool:
    if depth > 6:
        return False
    if v.op == "call":
        name = str(v.name)
        last = name.rpartition(".")[2]
        if name in ("tensor.mean", "torch.mean") or (name.startswith("torch.nn.functional.") and any(w in last for w in _LOSS_WORDS)):
            return bool(const_of(v.kwargs.get("reduction"), "mean") == "mean")
        if name == "module.__call__" and v.args:
            return any(a.op == "call" and str(a.name).startswith("torch.nn.") and any(w in str(a.name) for w in _LOSS_WORDS)
                       and const_of(a.kwargs.get("reduction"), "mean") == "mean" for a in alternatives(v.args[0]))
        if last in ("float", "to", "clone") and v.args:
            return is_mean_loss(v.args[0])
    if v.op == "bin" and v.name in ("/", "*") and not is_kind(v.args[1], "tensor", "grad"):
        return all(_mean(a, depth + 1) for a in alternatives(v.args[0])) and not any(w.op == "call" and "item" in str(w.name) for w in ancestors(v.args[1], 10))
    return False


def known_loss(loss: Value) -> bool:
    """True if all that made the loss, back to the model's forward, is known."""
    def stop(v: Value) -> bool:
        return v.op == "call" and str(v.name) in _FORWARDS and is_kind(v.args[0], "ddp", "fsdp", "module") and not _criterion(v)

    found = list(ancestors(loss, 200, stop))
    if not any(stop(v) for v in found):
        return False
    return not any(v.op == "call" and (str(v.name).startswith(("?", "project.")) or str(v.name) == "?.__call__") for v in found) and not any(
        (v.op == "call" and const_of(v.kwargs.get("reduction")) in ("sum", "none")) or (v.op == "call" and v.name in ("tensor.sum", "torch.sum")) for v in found)


def _criterion(v: Value) -> bool:
    return any(any(w in str(a.name) for w in _LOSS_WORDS) for a in alternatives(v.args[0]))


def divided(model: Model, loss: Value, backward: Event, loop: Region) -> bool:
    """True if the loss is scaled on its way to the backward, or gradients are scaled later in the loop."""
    def stop(v: Value) -> bool:
        return v.op == "call" and str(v.name) in _FORWARDS and not _criterion(v)

    for v in ancestors(loss, 200, stop):
        if (v.op == "bin" and v.name in ("/", "*", "//")) or (v.op == "call" and str(v.name).rpartition(".")[2] in ("div", "div_", "mul", "mul_", "true_divide")):
            return True
    for event in model.events:
        if loop.holds(event) and event.fn in ("augassign", "tensor.div_", "tensor.mul_", "torch._foreach_div_", "torch._foreach_mul_", "setattr") and any(
                v.kind == "grad" for g in event.given() for v in ancestors(g, 6)):
            return True
    return bool(backward.args) and backward.fn == "tensor.backward"


def divisor_of(loss: Value) -> Value | None:
    """The division between forward and backward: its second argument is the divisor."""
    def stop(v: Value) -> bool:
        return v.op == "call" and str(v.name) in _FORWARDS and not _criterion(v)

    return next((v for v in ancestors(loss, 60, stop) if v.op == "bin" and v.name == "/" and is_kind(v.args[0], "tensor")), None)
