"""Loss scaling: what GradScaler scales by, which steps it skips, and whether it is called in the right order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from gpudoctor.probes.frames import Place, caller
from gpudoctor.probes.guard import guarded
from gpudoctor.probes.probe import Probe
from gpudoctor.probes.sensors import wrap

_TWICE = ("since the last update", "being called after step")


@dataclass(slots=True)
class _Clip:
    when: int
    parameters: set[int]
    place: Place


@dataclass(slots=True)
class _State:
    """What happened with one scaler since its last `update`; times are counts of events."""

    scaled: int = -1
    unscaled: dict[int, int] = field(default_factory=dict)
    stepped_in: int = -1


class Amp(Probe):
    """Writes amp; facts: clip-before-unscale, scaler-update-missing, unscale-inside-accumulation."""

    def start(self) -> None:
        self._now = 0
        self._zeroed = self._backward = -1
        self._clips: list[_Clip] = []
        self._states: dict[int, _State] = {}
        scaler = torch.amp.GradScaler
        wrap(scaler, "scale", self._scale)
        wrap(scaler, "unscale_", self._unscale)
        wrap(scaler, "step", self._step)
        wrap(scaler, "update", self._update)
        wrap(torch.nn.utils, "clip_grad_value_", self._clip_value)
        torch.nn.utils.clip_grad.clip_grad_value_ = torch.nn.utils.clip_grad_value_

    def on_clip(self, parameters: list[Any], max_norm: float, total_norm: Any) -> None:
        if self._states:
            self._clips.append(_Clip(self._tick(), {id(p) for p in parameters}, caller()))
            del self._clips[:-16]

    def on_zero_grad(self, owner: Any) -> None:
        self._zeroed = self._tick()

    def on_backward_begin(self, tensors: tuple[Any, ...]) -> None:
        self._backward = self._tick()

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _state(self, scaler: Any) -> _State:
        return self._states.setdefault(id(scaler), _State())

    def _clip_value(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def clip_grad_value_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            with guarded(self, "clip_grad_value_"):
                self.on_clip(parameters, 0.0, None)
            return original(parameters, *args, **kwargs)

        return clip_grad_value_

    def _scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            if scaler.is_enabled():
                self._state(scaler).scaled = self._tick()
            return original(scaler, *args, **kwargs)

        return scale

    def _unscale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def unscale_(scaler: Any, optimizer: Any) -> Any:
            state = self._state(scaler)
            try:
                result = original(scaler, optimizer)
            except RuntimeError as error:
                with guarded(self, "refused"):
                    self._twice(state, optimizer, error)
                raise
            state.unscaled[id(optimizer)] = self._tick()
            return result

        return unscale_

    def _step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            state = self._state(scaler)
            if scaler.is_enabled():
                state.stepped_in = self.session.step
                with guarded(self, "step"):
                    self._check_clips(scaler, state, optimizer)
                    self._check_late_backward(state, optimizer)
            try:
                return original(scaler, optimizer, *args, **kwargs)
            except RuntimeError as error:
                with guarded(self, "refused"):
                    self._twice(state, optimizer, error)
                raise

        return step

    def _update(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            before = None
            if scaler.is_enabled():
                with guarded(self, "update"):
                    before = _before(scaler)
            result = original(scaler, *args, **kwargs)
            with guarded(self, "update"):
                if before is not None:
                    self._tell(scaler, before)
                self._states[id(scaler)] = _State()
                self._clips.clear()
            return result

        return update

    def _tell(self, scaler: Any, before: torch.Tensor) -> None:
        session, step = self.session, self._state(scaler).stepped_in
        if step < 0 or scaler._growth_tracker is None:
            return

        def arrived(values: list[float]) -> None:
            session.emit("amp", step=step, scale=values[0], skipped=values[1] > 0, growth_tracker=int(values[2]))

        session.readback.later(torch.cat([before, scaler._growth_tracker.detach().reshape(1).to(before.dtype)]), arrived)

    def _check_clips(self, scaler: Any, state: _State, optimizer: Any) -> None:
        unscaled = state.unscaled.get(id(optimizer), self._now + 1)
        early = [c for c in self._clips if state.scaled >= 0 and self._backward < c.when < unscaled and c.when > self._zeroed]
        if not early:
            return
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for clip in early:
            if clip.parameters & mine and scaler._scale is not None:
                self._with_scale(scaler, clip.place)
        self._clips = [c for c in self._clips if not c.parameters & mine]

    def _with_scale(self, scaler: Any, place: Place) -> None:
        session = self.session

        def arrived(values: list[float]) -> None:
            if values[0] != 1.0:
                session.fact("clip-before-unscale", place=place, value=values[0])

        session.readback.later(scaler._scale.detach().reshape(1).double(), arrived)

    def _check_late_backward(self, state: _State, optimizer: Any) -> None:
        """Gradients that were unscaled, then added to by another scaled backward."""
        unscaled = state.unscaled.get(id(optimizer))
        if unscaled is not None and len(state.unscaled) == 1 and unscaled < state.scaled < self._backward and self._zeroed < unscaled:
            self.session.fact("unscale-inside-accumulation", place=caller())

    def _twice(self, state: _State, optimizer: Any, error: RuntimeError) -> None:
        """GradScaler refuses a second call since its last `update`: was it unscaled too early, or never updated?"""
        if not any(text in str(error) for text in _TWICE):
            return
        unscaled = state.unscaled.get(id(optimizer), -1)
        accumulating = state.stepped_in < 0 and unscaled < state.scaled and self._zeroed < unscaled
        kind = "unscale-inside-accumulation" if accumulating else "scaler-update-missing"
        self.session.fact(kind, detail=str(error), place=caller())


def _before(scaler: Any) -> torch.Tensor | None:
    """The scale and the number of infinities found, before `update` resets them; on the scale's device."""
    if scaler._scale is None:
        return None
    found = [t.detach() for state in scaler._per_optimizer_states.values() for t in state["found_inf_per_device"].values()]
    if scaler._scale.device.type == "cpu" and all(t.device.type == "cpu" for t in found):
        return torch.tensor([scaler._scale.item(), sum(t.item() for t in found)])
    total = torch.zeros((), device=scaler._scale.device)
    for infinities in found:
        total = total + infinities.to(total.device, non_blocking=True)
    return torch.stack([scaler._scale.detach(), total])
