"""Clipping between a scaled backward and unscale_, on every path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Evidence
from gpudoctor.source import Module
from gpudoctor.source.events import Event, Region, text_of
from gpudoctor.source.evidence import at, insert_before
from gpudoctor.source.paths import paths
from gpudoctor.source.training import BACKWARDS, loss_of, training
from gpudoctor.source.values import alternatives, ancestors, const_of, is_kind

_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_", "torch.nn.utils.clip_grad_norm")


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """A clip is at fault if some path reaches it after a scaled backward and none unscales in between."""
    model = module.model
    if not model.calls(*_CLIPS):
        return
    wanted = {*_CLIPS, *BACKWARDS, "scaler.unscale_"}
    for root in model.roots:
        clips = [e for e in model.calls(*_CLIPS) if root.first <= e.index < root.last]
        if not clips:
            continue
        for region in training(model, root).loops or [root]:
            bad: dict[int, tuple[Event, Event]] = {}
            good: set[int] = set()
            for path in paths(region, lambda e: e.fn in wanted):
                scaled: Event | None = None
                for event in path.events:
                    if event.fn in BACKWARDS:
                        scaled = event if _scaled(event) else scaled
                    elif event.fn == "scaler.unscale_":
                        scaled = None
                        good |= {c.index for c in clips if c.index > event.index}
                    elif scaled is not None:
                        bad.setdefault(event.index, (event, scaled))
            for index, (clip, backward) in bad.items():
                if index not in good:
                    yield _finding(clip, backward, region)


def _finding(clip: Event, backward: Event, region: Region) -> Evidence:
    step = next((e for e in region.events() if e.fn == "scaler.step"), None)
    here = step is not None and step.region is clip.region
    scaler = text_of(step.node.func.value) if here and step is not None else "scaler"  # type: ignore[attr-defined]
    optimizer = text_of(step.node.args[0]) if here and step is not None and step.node.args else "optimizer"  # type: ignore[attr-defined]
    edit = insert_before(clip.node, f"{scaler}.unscale_({optimizer})") if here else None
    return at(clip, clip=text_of(clip.node), backward_line=backward.line, scaler=scaler, optimizer=optimizer, edit=edit)


def _scaled(backward: Event) -> bool:
    loss = loss_of(backward)
    if backward.fn == "accelerator.backward":
        return any(const_of(a.kwargs.get("mixed_precision")) == "fp16" for a in alternatives(backward.recv)) if backward.recv is not None else False
    if loss is None:
        return False
    for v in ancestors(loss, 12):
        if v.op == "call" and v.name == "scaler.scale":
            return not any(const_of(s.kwargs.get("enabled"), True) is False for s in alternatives(v.args[0])) and is_kind(v.args[0], "scaler", "")
    return False
