"""NVTX ranges for nsys: data, forward, backward, GradScaler.step, optimizer, and the step around them."""

from __future__ import annotations

from typing import Any

from gpudoctor.probes.models import Model
from gpudoctor.probes.probe import Probe


class Ranges(Probe):
    """Start/end ranges in the domain of the process, so that an exception in the script leaves no nesting astray."""

    def start(self) -> None:
        try:
            import nvtx
        except ImportError:
            self._nvtx: Any = None
            return
        self._nvtx = nvtx
        self._open: dict[str, Any] = {}
        self._begin("step", "step 0")

    def on_data_begin(self) -> None:
        self._begin("data", "data")

    def on_data_end(self) -> None:
        self._end("data")

    def on_forward_begin(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._begin("forward", "forward")

    def on_forward_end(self, model: Model, output: Any) -> None:
        self._end("forward")

    def on_backward_begin(self, tensors: tuple[Any, ...]) -> None:
        self._begin("backward", "backward")

    def on_backward_end(self) -> None:
        self._end("backward")

    def on_scaler_begin(self) -> None:
        self._begin("scaler", "GradScaler.step")

    def on_scaler_step(self, scaler: Any, optimizer: Any, ran: bool) -> None:
        self._end("scaler")

    def on_optimizer_begin(self, optimizer: Any) -> None:
        self._begin("optimizer", "optimizer")

    def on_optimizer_end(self, optimizer: Any) -> None:
        self._end("optimizer")

    def on_step_end(self, step: int) -> None:
        self._end("step")
        self._begin("step", f"step {step + 1}")

    def _begin(self, key: str, name: str) -> None:
        if self._nvtx is not None:
            self._end(key)
            self._open[key] = self._nvtx.start_range(name, domain=None)

    def _end(self, key: str) -> None:
        if self._nvtx is not None and key in self._open:
            self._nvtx.end_range(self._open.pop(key))
