"""Switches that are easily lost: training mode, autocast, clipping."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from gpudoctor.probes.frames import NOWHERE, caller
from gpudoctor.probes.models import Model
from gpudoctor.probes.probe import Probe
from gpudoctor.probes.sensors import wrap


class Modes(Probe):
    """Writes clip; facts: autocast-lost, dropout-in-eval."""

    def start(self) -> None:
        self._entered = 0
        self._place = NOWHERE
        self._inside_forward = False
        self._forwards = self._with_autocast = 0
        self._dropouts: dict[int, bool] = {}
        wrap(torch.amp.autocast_mode.autocast, "__enter__", self._entering)

    def on_forward_begin(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._inside_forward = True
        if torch.is_grad_enabled():
            self._forwards += 1
            self._with_autocast += any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda"))
        elif self.session.sampled:
            self._check_eval(model)

    def on_forward_end(self, model: Model, output: Any) -> None:
        self._inside_forward = False

    def on_clip(self, parameters: list[Any], max_norm: float, total_norm: Any) -> None:
        if not self.session.sampled or not isinstance(total_norm, torch.Tensor) or hasattr(total_norm, "device_mesh"):
            return
        place, session, step = caller(), self.session, self.session.step
        scaled = bool(session.scalers)

        def arrived(values: list[float]) -> None:
            session.emit("clip", step=step, total_norm=values[0], max_norm=max_norm, params=len(parameters), scaled=scaled, **place.columns())

        session.readback.later(total_norm.detach().reshape(1).to(torch.float64), arrived)

    def on_step_end(self, step: int) -> None:
        if self._entered and self._forwards and not self._with_autocast:
            self.session.fact("autocast-lost", place=self._place)
        self._entered = self._forwards = self._with_autocast = 0

    def _check_eval(self, model: Model) -> None:
        module = model.module()
        if module is None or not module.training:
            return
        if model.id not in self._dropouts:
            self._dropouts[model.id] = any(isinstance(m, nn.modules.dropout._DropoutNd) and m.p > 0 for m in module.modules())
        if self._dropouts[model.id]:
            self.session.fact("dropout-in-eval", type(module).__name__, place=caller())

    def _entering(self, original: Any) -> Any:
        def enter(context: Any) -> Any:
            if not torch.compiler.is_compiling() and not self._inside_forward and getattr(context, "_enabled", False) and not self.session.in_backward:
                self._entered += 1
                if self._place is NOWHERE:
                    self._place = caller()
            return original(context)

        return enter
