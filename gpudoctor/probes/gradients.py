"""Gradients: local ones as each bucket is handed over, reduced ones just before the optimizer, and the proof between."""

from __future__ import annotations

from typing import Any

import torch

from gpudoctor.probes import heartbeat
from gpudoctor.probes.collectives import group_label
from gpudoctor.probes.comm_hook import CommHooks
from gpudoctor.probes.measure import FLOATS, LOWEST
from gpudoctor.probes.models import Model, is_sharded
from gpudoctor.probes.probe import Probe
from gpudoctor.probes.proofs import Proofs

Looked = tuple[list[int], list[int], torch.Tensor]
"""Ids of parameters, elements of each, and their numbers on the device."""


class Gradients(Probe):
    """Writes grad_stat, grad_hist and, through `Proofs`, bucket."""

    def start(self) -> None:
        self._on = self.session.settings.gradients
        self.proofs = Proofs(self.session)
        self.session.proofs = self.proofs
        self._hooks = CommHooks(self.session, self) if torch.distributed.is_available() else None
        self._local: list[Looked] = []
        self._tickets: list[int] = []

    def on_forward_begin(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._hooks is not None and len(model.group) > 1 and torch.is_grad_enabled():
            self._hooks.install(model)

    def before(self, model: Model, bucket: Any, path: str) -> None:
        """A bucket is full with this rank's gradients and about to be reduced."""
        buffer = bucket.buffer()
        self._tickets.append(heartbeat.enter("ddp_all_reduce", group_label(getattr(model.ddp, "process_group", None)), buffer.numel(), str(buffer.dtype).removeprefix("torch.")))
        if not self.session.in_backward:
            return
        model.sync.buckets += 1
        if not self._on or not self.session.sampled:
            return
        index = bucket.index()
        ids = self._ids(model, bucket.parameters(), index)
        self.proofs.before(model, index, buffer, path)
        grads = bucket.gradients()
        positions = [i for i, p in enumerate(ids) if p >= 0 and grads[i].numel()]
        if positions:
            self._local.append(self._look([ids[i] for i in positions], [grads[i] for i in positions]))

    def sent(self, model: Model, bucket: Any, future: Any) -> None:
        """The reduction is under way."""
        if self._on and self.session.in_backward and self.session.sampled:
            self.proofs.sent(model, bucket.index(), future)

    def on_backward_end(self) -> None:
        for ticket in self._tickets:
            heartbeat.leave(ticket)
        self._tickets.clear()
        self.proofs.settle()

    def on_optimizer_begin(self, optimizer: Any) -> None:
        if not (self._on and self.session.sampled):
            self._local.clear()
            return
        for looked in self._local:
            self._write(looked, "local")
        self._local.clear()
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        for model in self.session.models:
            if model.kind == "fsdp":
                self.session.fact("cannot-see", "gradients", "the model is sharded (FSDP); its gradients are pieces and are not compared")
                continue
            ids, grads = [], []
            for i, p in enumerate(model.params):
                grad = p.grad
                if grad is not None and id(p) in mine and grad.dtype in FLOATS and grad.layout == torch.strided and grad.numel() and not is_sharded(grad):
                    ids.append(model.first_id + i)
                    grads.append(grad)
            if grads:
                self._write(self._look(ids, grads), "reduced")

    def _ids(self, model: Model, params: list[Any], bucket: int) -> list[int]:
        index = model.index()
        out = []
        for p in params:
            i = index.get(id(p), -1)
            out.append(model.first_id + i if i >= 0 else -1)
            if i >= 0:
                model.buckets[i] = bucket
        return out

    def _look(self, ids: list[int], grads: list[torch.Tensor]) -> Looked:
        """Norms of some gradients; in a detailed step their details and histograms too, one after the other in one row of numbers."""
        measure, numels = self.session.measure, [g.numel() for g in grads]
        if not self.session.detailed:
            return ids, numels, measure.norms(grads)
        with self.session.rare():
            return ids, numels, torch.cat([part.reshape(-1) for part in measure.everything(grads)])

    def _write(self, looked: Looked, stage: str) -> None:
        ids, numels, numbers = looked
        session, step, n = self.session, self.session.step, len(ids)

        def arrived(values: list[float]) -> None:
            columns: dict[str, Any] = {"step": step, "param_id": ids, "stage": stage, "numel": numels, "norm": values[:n]}
            if len(values) > n:
                rows = [values[n + 5 * i : n + 5 * i + 5] for i in range(n)]
                columns |= {
                    "mean": [r[0] for r in rows], "absmax": [r[1] for r in rows], "zeros": [int(r[2]) for r in rows],
                    "nonfinite": [int(r[3]) for r in rows], "checksum": [r[4] for r in rows],
                }
                self._histogram(ids, step, stage, values[6 * n :])
            else:
                columns["nonfinite"] = [0 if v - v == 0 else 1 for v in columns["norm"]]
            session.emit("grad_stat", **columns)

        session.readback.later(numbers, arrived)

    def _histogram(self, ids: list[int], step: int, stage: str, counts: list[float]) -> None:
        rows = [(ids[k // 64], k % 64 + LOWEST, int(c)) for k, c in enumerate(counts) if c > 0]
        if rows:
            self.session.emit("grad_hist", step=step, stage=stage, param_id=[r[0] for r in rows], bin=[r[1] for r in rows], count=[r[2] for r in rows])
