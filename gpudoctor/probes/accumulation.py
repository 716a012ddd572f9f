"""Which backward passes feed an optimizer step: synchronised or not, scaled or not, kept or thrown away."""

from __future__ import annotations

from typing import Any

import torch

from gpudoctor.probes.frames import NOWHERE, Place, caller
from gpudoctor.probes.loss import Loss, describe, place_of_world_factor
from gpudoctor.probes.models import Model
from gpudoctor.probes.probe import Probe


class Accumulation(Probe):
    """Facts: no-sync-without-forward, flag-after-forward, unsynced-step, gradients-discarded, loss-times-world, …"""

    def start(self) -> None:
        self._places: list[Place] = []
        self._zero_place = NOWHERE
        self._discarded: list[Place] = []
        self._losses: list[Loss] = []
        self._optimizers: set[int] = set()
        self._world_frames: list[Any] = []

    def on_forward_begin(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ddp = model.ddp
        if ddp is not None and torch.is_grad_enabled():
            model.sync.flag = bool(ddp.require_backward_grad_sync)

    def on_backward_begin(self, tensors: tuple[Any, ...]) -> None:
        place = caller()
        self._places.append(place)
        for model in self.session.models:
            ddp = model.ddp
            if ddp is not None:
                model.sync.buckets = 0
                if model.forwards.through and ddp.require_backward_grad_sync != model.sync.flag:
                    self._late(model, place)
        if self.session.sampled:
            loss = describe(tensors[0], self.session.loss_scales()) if tensors else None
            if loss is not None:
                self._losses.append(loss)
                world = self.session.world_size
                if world > 1 and world in loss.factors and loss.base == "mean" and not self._world_frames:
                    self._world_frames.append(place_of_world_factor())

    def on_backward_end(self) -> None:
        for model in self.session.models:
            if model.ddp is None:
                continue
            sync = model.sync
            if model.forwards.through or model.forwards.past or sync.buckets:
                sync.backwards += 1
                sync.last_synced, sync.last_flag = sync.buckets > 0, sync.flag
                sync.reduced += sync.buckets > 0

    def on_zero_grad(self, owner: Any) -> None:
        if self._places:
            self._discarded += self._places
            self._places.clear()
            self._zero_place = caller()

    def on_optimizer_begin(self, optimizer: Any) -> None:
        self._optimizers.add(id(optimizer))
        for model in self.session.models:
            sync = model.sync
            if model.ddp is None or not sync.backwards or sync.manual or len(model.group) < 2:
                continue
            if not sync.last_synced and not sync.last_flag and model.forwards.through:
                self.session.fact("unsynced-step", type(model.module()).__name__, place=sync.no_sync_place, value=float(sync.backwards))

    def on_step_end(self, step: int) -> None:
        if len(self._optimizers) == 1 and self._discarded and set(self._discarded) == set(self._places) and len(self._places) > 0:
            total = len(self._discarded) + len(self._places)
            self.session.fact("gradients-discarded", place=self._zero_place, value=float(total))
        if self._losses:
            factors = {round(x.factor, 12) for x in self._losses}
            bases = {x.base for x in self._losses}
            one_line = len(set(self._places)) == 1
            self.session.emit(
                "loss", step=step, factor=self._losses[-1].factor, base=bases.pop() if len(bases) == 1 else "unknown",
                uniform=len(factors) == 1, micro_batches=len(self._places), one_line=one_line,
                **(self._places[-1].columns() if self._places else {}),
            )
            self._tell_world_factor()
        self._places.clear()
        self._discarded.clear()
        self._losses.clear()
        for model in self.session.models:
            model.sync.clear()
            model.forwards.clear()

    def finish(self) -> None:
        if self._places and self.session.step:
            self.session.fact("leftover-micro-batches", place=self._places[-1], value=float(len(self._places)))

    def _late(self, model: Model, place: Place) -> None:
        sync = model.sync
        if sync.in_no_sync:
            if sync.flag:
                self.session.fact("no-sync-without-forward", type(model.module()).__name__, place=sync.no_sync_place)
        else:
            self.session.fact("flag-after-forward", type(model.module()).__name__, place=place, value=float(sync.flag))

    def _tell_world_factor(self) -> None:
        place = self._world_frames[0] if self._world_frames else None
        if place is None:
            return
        loss, passes, world = self._losses[-1], max(1, len(self._places)), self.session.world_size
        if world in loss.factors and loss.base == "mean" and (loss.factor == world or abs(loss.factor * passes - world) < 1e-9):
            self.session.fact("loss-times-world", place=place, value=float(world))
