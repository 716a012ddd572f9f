"""Accumulated losses that nothing divides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.accumulation import windows
from gpudoctor.source.evidence import at_node
from gpudoctor.source.scaling import divided, known_loss
from gpudoctor.source.training import loss_of, training


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """At fault if several micro-batches feed each step in all simulated choices, and neither loss nor gradients are divided."""
    model = module.model
    for root in model.roots:
        for loop in training(model, root).loops:
            sizes = [{len({m.turn for m in w.micros}) if len({m.turn for m in w.micros}) > 1 else len(w.micros) for w in found[:-1]} for found in windows(loop) if len(found) > 1]
            if not sizes or not all(s == sizes[0] and len(s) == 1 and max(s) > 1 for s in sizes):
                continue
            found = next(iter(windows(loop)))
            micros = found[0].micros
            if len({id(m.backward.node) for m in micros}) != 1:
                continue
            backward = micros[0].backward
            loss = loss_of(backward)
            if loss is None or backward.fn != "tensor.backward" or not known_loss(loss) or divided(model, loss, backward, loop):
                continue
            node = next((v.node for v in (loss.args[1] if loss.op == "call" and loss.name == "scaler.scale" and len(loss.args) > 1 else loss,) if v.node is not None), backward.node)
            yield at_node(backward.module, node if backward.module is loop.module else backward.node, count_text=str(len(micros)), step_line=found[0].step.line)
