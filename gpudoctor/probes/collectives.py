"""Collectives that the script calls: who, where, how big; and all-reduces of gradients by hand."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from gpudoctor.probes import heartbeat
from gpudoctor.probes.frames import Place, caller
from gpudoctor.probes.measure import FLOATS
from gpudoctor.probes.models import Model
from gpudoctor.probes.probe import Probe

NAMES = (
    "all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "all_gather_coalesced", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "monitored_barrier", "send", "recv", "isend", "irecv",
    "all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list", "batch_isend_irecv",
)
ALL_RECORDED = 2_000


class Collectives(Probe):
    """Writes collective and, for plain all-reduces, the proof; facts: grads-reduced-by-hand, redundant-all-reduce."""

    def start(self) -> None:
        self._inside = threading.local()
        self._seq: dict[str, int] = {}
        self._count = 0
        self._grads: dict[int, Model | None] = {}
        if not dist.is_available():
            return
        from torch.distributed import distributed_c10d

        for name in NAMES:
            original = getattr(dist, name, None)
            if original is not None:
                ours = self._wrapped(name, original)
                setattr(dist, name, ours)
                if getattr(distributed_c10d, name, None) is original:
                    setattr(distributed_c10d, name, ours)

    def on_backward_begin(self, tensors: tuple[Any, ...]) -> None:
        self._grads.clear()

    def on_optimizer_begin(self, optimizer: Any) -> None:
        self._grads.clear()

    def _wrapped(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or getattr(self._inside, "flag", False):
                return original(*args, **kwargs)
            self._inside.flag = True
            try:
                return self._call(name, original, args, kwargs)
            finally:
                self._inside.flag = False

        return collective

    def _call(self, name: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        session, before, tensor, place = self.session, None, None, None
        label, numel, dtype, ticket = "", 0, "", -1
        with session.guarded("Collectives"):
            tensor, place, label = _tensor(args, kwargs), caller(), group_label(kwargs.get("group"))
            numel, dtype = tensor.numel() if tensor is not None else 0, _dtype(tensor)
            ticket = heartbeat.enter(name, label, numel, dtype, place.path, place.line, place.func)
            if name == "all_reduce" and tensor is not None and not kwargs.get("async_op", False):
                before = self._before(tensor, args, kwargs)
            if name.startswith(("all_reduce", "reduce")) and tensor is not None:
                self._note_gradients(tensor, place)
        start = time.time_ns()
        failed = True
        try:
            result = original(*args, **kwargs)
            failed = False
            return result
        finally:
            end = time.time_ns()
            with session.guarded("Collectives"):
                heartbeat.leave(ticket, failed)
                session.comm_ns += end - start
                self._record(name, label, numel, dtype, start, end, "failed" if failed else "completed", place)
                if before is not None and not failed and tensor is not None and session.proofs is not None:
                    session.proofs.manual(before[0], tensor, before[1], before[2])

    def _record(self, op: str, group: str, numel: int, dtype: str, start: int, end: int, state: str, place: Place | None) -> None:
        seq = self._seq.get(group, 0)
        self._seq[group] = seq + 1
        self._count += 1
        if self._count <= ALL_RECORDED or self.session.sampled:
            self.session.emit(
                "collective", group=group, op=op, dtype=dtype, state=state, seq=seq, numel=numel, step=self.session.step, start=start, end=end,
                func=place.func if place is not None else "", **(place.columns() if place is not None else {}),
            )

    def _before(self, tensor: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, int, str] | None:
        op = kwargs.get("op", args[1] if len(args) > 1 else dist.ReduceOp.SUM)
        name = "sum" if op == dist.ReduceOp.SUM else "mean" if op == dist.ReduceOp.AVG else ""
        group = kwargs.get("group", args[2] if len(args) > 2 else None)
        world = dist.get_world_size(group)
        session = self.session
        if not (name and session.sampled and session.settings.gradients and world > 1 and tensor.dtype in FLOATS and tensor.numel() and tensor.layout == torch.strided):
            return None
        return session.measure.proof(tensor.detach().reshape(-1)), world, name

    def _note_gradients(self, tensor: torch.Tensor, place: Place) -> None:
        """Is this the gradient of a parameter, or as large as all of a model's gradients together?"""
        if tensor.dtype not in FLOATS:
            return
        if not self._grads:
            for owner in self.session.models:
                for p in owner.params:
                    if p.grad is not None:
                        self._grads[p.grad.data_ptr()] = owner
            self._grads[-1] = None
        model = self._grads.get(tensor.data_ptr())
        if model is None:
            model = next((m for m in self.session.models if tensor.numel() == sum(p.grad.numel() for p in m.params if p.grad is not None) > 0), None)
            if model is None:
                return
        model.sync.manual += 1
        if model.kind == "ddp" and model.sync.reduced:
            self.session.fact("redundant-all-reduce", place.func, place=place)
        else:
            self.session.fact("grads-reduced-by-hand", str(model.id), place=place)


def _tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor):
            return value[0]
    return None


def group_label(group: Any) -> str:
    """A name for a process group that is the same on all its ranks: `world` for the default one."""
    if group is None or group is dist.group.WORLD:
        return "world"
    return str(getattr(group, "group_name", "")) or "world"


def _dtype(tensor: torch.Tensor | None) -> str:
    return "" if tensor is None else str(tensor.dtype).removeprefix("torch.")
