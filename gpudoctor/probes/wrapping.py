"""DDP wrappers: what they cover, and whether forwards really go through them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.optim import Optimizer

from gpudoctor.probes.frames import caller
from gpudoctor.probes.models import Model
from gpudoctor.probes.probe import Probe
from gpudoctor.probes.watch_forward import watch_past

_BATCHNORM = nn.modules.batchnorm._BatchNorm


class Wrapping(Probe):
    """Writes model and param; facts: ddp-bypassed, ddp-moved, ddp-silent, params-added, params-not-in-optimizer, ddp-rewrapped, …"""

    def start(self) -> None:
        self._told: set[tuple[str, int]] = set()
        self._watching: dict[int, tuple[bool, Callable[[], None]]] = {}
        self._traits: dict[int, list[tuple[Any, Any, bool]]] = {}
        self._optimized: set[int] = set()
        self._stepping: dict[int, int] = {}
        self._params_written = 0

    def on_model(self, model: Model) -> None:
        session, ddp, module = self.session, model.ddp, model.module()
        if module is None:
            return
        session.emit(
            "model", model_id=model.id, kind=model.kind, name=type(module).__name__, step=session.step, params=len(model.params),
            numel=sum(p.numel() for p in model.params), first_param=model.first_id, ranks=",".join(map(str, model.group)), wraps=model.wraps,
            broadcast_buffers=ddp.broadcast_buffers if ddp is not None else None,
            find_unused=ddp.find_unused_parameters if ddp is not None else None,
            static_graph=ddp.static_graph if ddp is not None else None,
            batchnorms=sum(isinstance(m, _BATCHNORM) and not isinstance(m, nn.SyncBatchNorm) and m.track_running_stats for m in module.modules()),
            compiled=model.compiled, **model.place.columns(),
        )
        if model.kind == "ddp":
            self._traits[model.id] = [(p.dtype, p.device, p.requires_grad) for p in model.params]
            if model.wraps > 1:
                session.fact("ddp-rewrapped", type(module).__name__, place=model.place, value=float(session.step))
        elif model.kind in ("fsdp", "dp"):
            session.fact("cannot-see", model.kind, f"{type(module).__name__} is {'sharded' if model.kind == 'fsdp' else 'nn.DataParallel'}: its replicas are not compared")

    def on_optimizer_begin(self, optimizer: Any) -> None:
        if id(optimizer) not in self._stepping or self.session.step % 64 == 0:
            self._stepping[id(optimizer)] = sum(len(g["params"]) for g in optimizer.param_groups)
            self._optimized |= {id(p) for g in optimizer.param_groups for p in g["params"]}
        if self.session.sampled and not self.session.has_closure and all(p.grad is None for g in optimizer.param_groups for p in g["params"]):
            self.session.fact("optimizer-without-gradients", type(optimizer).__name__, place=caller(), value=float(self._stepping[id(optimizer)]))
        for model in self.session.models:
            if model.kind == "ddp" and len(model.group) > 1:
                self._check_path(model)

    def on_step_end(self, step: int) -> None:
        if step in (1, 2, 3) or step & (step - 1) == 0 or step % 256 == 0:
            for model in self.session.models:
                self._check_members(model)
        if step == 1:
            self._write_params()

    def finish(self) -> None:
        self._write_params()
        for model in self.session.models:
            ddp = model.ddp
            if ddp is not None and ddp.find_unused_parameters and self.session.step >= 3 and not self._was_told("unused", model):
                self.session.fact("find-unused-needless", type(model.module()).__name__, place=model.place)

    def _check_path(self, model: Model) -> None:
        """Just before the step: gradients are there, yet no bucket was reduced."""
        sync, forwards = model.sync, model.forwards
        if sync.reduced or sync.manual or model.compiled:
            self._unwatch(model)
            return
        if not any(p.grad is not None for p in model.params):
            return
        name = type(model.module()).__name__
        if forwards.through:
            if sync.last_flag:
                moved = self._moved(model)
                self.session.fact("ddp-moved" if moved else "ddp-silent", name, moved, model.place)
        elif forwards.past:
            self.session.fact("ddp-bypassed", name, place=forwards.past_place)
        else:
            self._watch(model)

    def _watch(self, model: Model) -> None:
        deep, undo = self._watching.get(model.id, (None, None))
        if deep is None:
            self._watching[model.id] = False, watch_past(model, False)
        elif deep is False and undo is not None:
            undo()
            self._watching[model.id] = True, watch_past(model, True)

    def _unwatch(self, model: Model) -> None:
        if model.id in self._watching:
            self._watching.pop(model.id)[1]()

    def _moved(self, model: Model) -> str:
        for (dtype, device, _), p in zip(self._traits.get(model.id, ()), model.params, strict=False):
            if (p.dtype, p.device) != (dtype, device):
                return f"from {dtype} on {device} to {p.dtype} on {p.device}".replace("torch.", "")
        return ""

    def _check_members(self, model: Model) -> None:
        module = model.module()
        if module is None:
            return
        known = model.index()
        if model.kind == "ddp" and len(model.group) > 1:
            added = [(n, p) for n, p in module.named_parameters() if id(p) not in known and p.requires_grad and not hasattr(p, "_ddp_ignored")]
            traits = self._traits.get(model.id, [])
            thawed = [(n, p) for n, p, t in zip(model.names, model.params, traits, strict=False) if p.requires_grad and not t[2] and not hasattr(p, "_ddp_ignored")]
            late = [(n, p) for n, p in added + thawed if p.grad is not None or id(p) in self._optimized]
            if late:
                self._tell_once("params-added", model, late, "unfrozen" if thawed and not added else "added")
            without = [(n, p) for n, p in zip(model.names, model.params, strict=False) if p.requires_grad and p.grad is None and id(p) in self._optimized]
            if without and any(p.grad is not None for p in model.params):
                self._tell_once("unused", model, without, "no gradient")
        self._check_optimized(model, module)

    def _check_optimized(self, model: Model, module: nn.Module) -> None:
        """Parameters with gradients that no living optimizer holds, in a model that is otherwise optimized."""
        if model.kind in ("fsdp", "dp"):
            return
        named = list(module.named_parameters())
        if not any(id(p) in self._optimized and p.grad is not None for _, p in named):
            return
        idle = [(n, p) for n, p in named if p.requires_grad and p.grad is not None and id(p) not in self._optimized]
        if idle and not self._was_told("params-not-in-optimizer", model):
            held = _held_by_optimizers()
            idle = [(n, p) for n, p in idle if id(p) not in held]
            if idle:
                self._tell_once("params-not-in-optimizer", model, idle, "")

    def _tell_once(self, kind: str, model: Model, named: list[tuple[str, Any]], detail: str) -> None:
        if self._was_told(kind, model):
            return
        self._told.add((kind, model.id))
        shown = ", ".join(n for n, _ in named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")
        self.session.fact(kind, shown, detail, model.place, float(len(named)))

    def _was_told(self, kind: str, model: Model) -> bool:
        return (kind, model.id) in self._told

    def _write_params(self) -> None:
        for model in self.session.models:
            if model.id < self._params_written or not model.params:
                continue
            self._params_written = model.id + 1
            n = len(model.params)
            self.session.recorder.add("param", {
                "rank": self.session.rank, "param_id": list(range(model.first_id, model.first_id + n)), "name": model.names,
                "numel": [p.numel() for p in model.params], "dtype": [str(p.dtype).removeprefix("torch.") for p in model.params], "model_id": model.id,
                "bucket": [model.buckets.get(i, -1) for i in range(n)], "in_optimizer": [id(p) in self._optimized for p in model.params],
                "requires_grad": [p.requires_grad for p in model.params], "ddp": model.kind == "ddp",
            })


def _held_by_optimizers() -> set[int]:
    optimizers = [o for o in gc.get_objects() if issubclass(type(o), Optimizer)]
    return {id(p) for o in optimizers for g in o.param_groups for p in g["params"]}
