"""Checksums of what should be equal on all ranks, and of what should not."""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import torch

from gpudoctor.probes.inputs import fingerprint, tensors
from gpudoctor.probes.models import Model
from gpudoctor.probes.probe import Probe


class Replicas(Probe):
    """Writes replica: parameters and buffers before the step's update, the batch of each sampled step, random streams now and then."""

    def start(self) -> None:
        self._batches: list[torch.Tensor] = []
        self._count = 0

    def on_forward_begin(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.session.sampled and torch.is_grad_enabled() and len(self._batches) < 16:
            self._batches += [fingerprint(t) for t in tensors((args, kwargs)) if t.numel() and t.layout == torch.strided][:4]

    def on_optimizer_begin(self, optimizer: Any) -> None:
        session = self.session
        if not session.sampled:
            return
        mine = {id(p) for g in optimizer.param_groups for p in g["params"]}
        self._count += 1
        if session.step < 16 or self._count % 4 == 0:
            for model in session.models:
                module = model.module()
                if model.comparable and module is not None and any(id(p) in mine for p in model.params):
                    self._write(model, module)

    def on_step_end(self, step: int) -> None:
        if not self._batches:
            return
        device = self._batches[0].device
        values = torch.cat([b.to(device, non_blocking=True) for b in self._batches if b.device == device])
        random_state = _random_fingerprint() if self.session.detailed else None
        session = self.session

        def arrived(numbers: list[float]) -> None:
            text = hashlib.blake2b(repr(numbers).encode(), digest_size=8).hexdigest()
            session.emit("replica", step=step, model_id=-1, batch_fingerprint=text, rng_fingerprint=random_state)

        session.readback.later(values, arrived)
        self._batches.clear()

    def _write(self, model: Model, module: torch.nn.Module) -> None:
        session, step, measure = self.session, self.session.step, self.session.measure
        sums = [measure.checksum([p for p in model.params if not hasattr(p, "_ddp_ignored")])]
        buffers = [b for b in module.buffers() if b.numel() and b.layout == torch.strided]
        if buffers:
            sums.append(measure.checksum(buffers))

        def arrived(values: list[int]) -> None:
            columns = {"param_checksum": f"{values[0] & (1 << 64) - 1:016x}"}
            if len(values) > 1:
                columns["buffer_checksum"] = f"{values[1] & (1 << 64) - 1:016x}"
            session.emit("replica", step=step, model_id=model.id, **columns)

        device = sums[0].device
        session.readback.later(torch.cat([s.to(device) for s in sums]), arrived)


def _random_fingerprint() -> str:
    parts = {"torch": torch.get_rng_state().numpy().tobytes(), "python": repr(random.getstate()).encode()}
    if (numpy := sys.modules.get("numpy")) is not None:
        state = numpy.random.get_state()
        parts["numpy"] = state[1].tobytes() + str(state[2]).encode()
    return " ".join(f"{k}:{hashlib.blake2b(v, digest_size=6).hexdigest()}" for k, v in parts.items())
