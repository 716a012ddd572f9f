"""Aggregate copies that lie on several cards: read over P2P where the cards can, staged through a copy where they cannot."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from gpudoctor.kernels.launch import Launcher
from gpudoctor.kernels.variant import Level


def aggregate_across(out: torch.Tensor, inputs: Sequence[torch.Tensor], scale: float = 1.0, seed: int = 0, level: Level = Level.histogram) -> tuple[torch.Tensor, torch.Tensor]:
    """`out = scale * sum(inputs)` on `out`'s card, with the statistics as Launcher gives them.

    The inputs may lie on any card; each card's current stream is waited for, and waits until its buffer has been read.
    GeForce cards have no P2P: there the driver copies through host memory first.
    """
    home = torch.cuda.current_stream(out.device)
    others = {t.device: torch.cuda.current_stream(t.device) for t in inputs if t.device != out.device}
    for stream in others.values():
        home.wait_event(stream.record_event())
    with torch.cuda.device(out.device):
        near = [t if t.device == out.device or readable(out.device.index, t.device.index) else t.to(out.device, non_blocking=True) for t in inputs]
        result = Launcher([near], [out], level, device=out.device)(scale, seed=seed)
    done = home.record_event()
    for stream in others.values():
        stream.wait_event(done)
    return result


@functools.cache
def readable(reader: int, owner: int) -> bool:
    """Whether card `reader` can read card `owner`'s memory; makes it so where the hardware allows."""
    if not torch.cuda.can_device_access_peer(reader, owner):
        return False
    torch.empty(1, device=f"cuda:{owner}").to(f"cuda:{reader}")  # PyTorch enables peer access at its first copy
    return True
