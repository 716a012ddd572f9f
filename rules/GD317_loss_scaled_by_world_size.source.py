"""Mean losses multiplied or divided by the world size on their way into a DDP backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import text_of
from gpudoctor.source.evidence import at_node
from gpudoctor.source.scaling import is_mean_loss
from gpudoctor.source.training import BACKWARDS, loss_of
from gpudoctor.source.values import Value, ancestors, is_kind


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """Scalings by a world size between loss and backward; gathered losses and sums over a global count are left alone."""
    model = module.model
    seen: set[int] = set()
    for backward in model.calls(*BACKWARDS):
        loss = loss_of(backward)
        if loss is None:
            continue
        used = list(ancestors(loss, 1500))
        if not any(v.op == "call" and v.name == "ddp.__call__" for v in used) or any(_gathers(v) for v in used):
            continue
        for v in used[:40]:
            factor = _scaled_by_world(v)
            if factor is not None and v.uid not in seen and v.event is not None and is_mean_loss(factor):
                seen.add(v.uid)
                times = v.name in ("*", "tensor.mul", "tensor.mul_")
                yield at_node(v.event.module, v.event.node, expr=text_of(v.node), how="world-size times too large" if times else "world-size times too small")


def _scaled_by_world(v: Value) -> Value | None:
    if v.op == "bin" and v.name in ("*", "/"):
        left, right = v.args
        if _world(right) and is_kind(left, "tensor"):
            return left
        if v.name == "*" and _world(left) and is_kind(right, "tensor"):
            return right
    if v.op == "call" and v.name in ("tensor.mul", "tensor.mul_", "tensor.div", "tensor.div_") and len(v.args) > 1 and _world(v.args[1]):
        return v.args[0]
    return None


def _world(v: Value) -> bool:
    return is_kind(v, "world") and not any(a.name == "torch.cuda.device_count" for a in ancestors(v, 6))


def _gathers(v: Value) -> bool:
    return v.op == "call" and any(w in str(v.name) for w in ("gather", "all_reduce", "reduce_scatter", "all_to_all"))
