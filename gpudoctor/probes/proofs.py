"""Every all-reduce proved: sum, ±1 sketch and norm of what went in and of what came out, for the report to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from gpudoctor.probes.models import Model
    from gpudoctor.probes.session import Session


@dataclass
class _Open:
    """An all-reduce whose result is still to be measured."""

    bucket: int
    micro_batch: int
    numel: int
    dtype: str
    world: int
    op: str
    path: str
    model_id: int
    before: torch.Tensor
    result: Any = None


class Proofs:
    """Collects pairs of measurements and writes them as rows of `bucket`."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._open: list[_Open] = []
        self._manual = 0
        self._step = -1

    def before(self, model: Model, index: int, buffer: torch.Tensor, path: str) -> None:
        """A DDP bucket, before DDP or the user's hook touches it."""
        self._open.append(_Open(
            index, self._session.micro_batch, buffer.numel(), _name(buffer), len(model.group), "mean", path, model.id,
            self._session.measure.proof(buffer),
        ))

    def sent(self, model: Model, index: int, future: Any) -> None:
        """Keep the future whose value is the reduced bucket."""
        for item in self._open:
            if item.bucket == index and item.model_id == model.id and item.result is None:
                item.result = future
                return

    def settle(self) -> None:
        """Backward is over: measure what came out, and write the rows once the numbers are on the host."""
        done = []
        for item in self._open:
            try:
                value = item.result.value() if item.result is not None and item.result.done() else None
            except RuntimeError:
                value = None
            if isinstance(value, (list, tuple)):
                value = value[0]
            if isinstance(value, torch.Tensor):
                done.append((item, self._session.measure.proof(value.reshape(-1))))
        self._open.clear()
        self._write(done)

    def manual(self, before: torch.Tensor, after: torch.Tensor, world: int, op: str) -> None:
        """A plain all_reduce that was done and waited for; `before` is the proof taken ahead of it."""
        if self._step != self._session.step:
            self._step, self._manual = self._session.step, 0
        flat = after.detach().reshape(-1)
        item = _Open(self._manual, self._session.micro_batch, flat.numel(), _name(after), world, op, "manual", -1, before)
        self._manual += 1
        self._write([(item, self._session.measure.proof(flat))])

    def _write(self, done: list[tuple[_Open, torch.Tensor]]) -> None:
        if not done:
            return
        session, step, items = self._session, self._session.step, [i for i, _ in done]

        def arrived(values: list[float]) -> None:
            rows = [values[6 * k : 6 * k + 6] for k in range(len(items))]
            session.emit(
                "bucket", step=step, bucket=[i.bucket for i in items], micro_batch=[i.micro_batch for i in items], numel=[i.numel for i in items],
                world=[i.world for i in items], dtype=[i.dtype for i in items], op=[i.op for i in items], path=[i.path for i in items],
                model_id=[i.model_id for i in items],
                local_sum=[r[0] for r in rows], local_sketch=[r[1] for r in rows], local_norm2=[r[2] for r in rows],
                reduced_sum=[r[3] for r in rows], reduced_sketch=[r[4] for r in rows], reduced_norm2=[r[5] for r in rows],
            )

        session.readback.later(torch.cat([part for item, after in done for part in (item.before, after)]), arrived)


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
