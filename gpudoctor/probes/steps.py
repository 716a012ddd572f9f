"""Steps: where they begin and end, and how long their phases take on the host."""

from __future__ import annotations

import time
from typing import Any

import torch

from gpudoctor.probes import heartbeat
from gpudoctor.probes.inputs import batch_size
from gpudoctor.probes.models import Model
from gpudoctor.probes.probe import Probe


class Steps(Probe):
    """A step ends when the primary optimizer has stepped, or GradScaler has skipped it.

    The primary optimizer is the first that steps; another takes its place if that one stops stepping.
    """

    def start(self) -> None:
        self._primary = 0
        self._strangers: dict[int, int] = {}
        self._begin = 0
        self._probe_ns = 0
        self._clear()

    def on_data(self, loader: Any, batch: Any, waited_ns: int) -> None:
        if not self._begin:
            self._open(time.time_ns() - waited_ns)
        self._data += waited_ns
        heartbeat.phase("data")

    def on_forward_begin(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        now = time.time_ns()
        if not self._begin:
            self._open(now)
        self._mark = now
        if torch.is_grad_enabled():
            self._samples += batch_size(args, kwargs)
        heartbeat.phase("forward")

    def on_forward_end(self, model: Model, output: Any) -> None:
        if torch.is_grad_enabled():
            self._forward += time.time_ns() - self._mark

    def on_backward_begin(self, tensors: tuple[Any, ...]) -> None:
        self._mark = time.time_ns()
        if not self._begin:
            self._open(self._mark)
        heartbeat.phase("backward")

    def on_backward_end(self) -> None:
        self._backward += time.time_ns() - self._mark
        self._micro_batches += 1

    def on_optimizer_begin(self, optimizer: Any) -> None:
        self._mark = time.time_ns()
        if not self._begin:
            self._open(self._mark)
        heartbeat.phase("optimizer")

    def on_optimizer_end(self, optimizer: Any) -> None:
        self._optimizer += time.time_ns() - self._mark
        if self._is_primary(optimizer):
            self._close(optimizer)

    def on_scaler_step(self, scaler: Any, optimizer: Any, ran: bool) -> None:
        if not ran and self._is_primary(optimizer):
            self.session.fact("step-skipped", "GradScaler")
            self._close(optimizer)

    def on_scheduler_step(self, scheduler: Any) -> None:
        self._ticks += 1

    def _is_primary(self, optimizer: Any) -> bool:
        me = id(optimizer)
        if not self._primary:
            self._primary = me
        if me == self._primary:
            self._strangers.clear()
            return True
        self._strangers[me] = self._strangers.get(me, 0) + 1
        if self._strangers[me] >= 3:
            self._primary = me
            return True
        return False

    def _open(self, now: int) -> None:
        self._begin = now
        self._probe_ns = self.session.spent_ns

    def _clear(self) -> None:
        self._data = self._forward = self._backward = self._optimizer = 0
        self._micro_batches = self._samples = self._ticks = 0
        self._mark = 0

    def _close(self, optimizer: Any) -> None:
        session, end = self.session, time.time_ns()
        spent = session.spent_ns - self._probe_ns
        rate = optimizer.param_groups[0].get("lr") if optimizer.param_groups else None
        session.emit(
            "step", step=session.step, start=self._begin, end=end, data_ns=self._data, forward_ns=self._forward,
            backward_ns=self._backward, optimizer_ns=self._optimizer, comm_ns=session.comm_ns, micro_batches=self._micro_batches,
            samples=self._samples, warmup=session.step < 2, source="probe",
            lr=rate if isinstance(rate, float) else None, scheduler_steps=self._ticks,
        )
        begin, self._begin = self._begin, 0
        self._clear()
        session.end_step(spent, end - begin)
        self._open(end)
