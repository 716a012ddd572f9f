"""Places the sensors in torch: hooks where torch offers them, thin wrappers where it does not."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from gpudoctor import settle
from gpudoctor.probes.frames import Place, caller
from gpudoctor.probes.watch_forward import watch_ddp_class

if TYPE_CHECKING:
    from gpudoctor.probes.models import Model
    from gpudoctor.probes.session import Session


def place_sensors(session: Session) -> None:
    """Install every sensor; call once in a process, before the user's script imports names from torch."""
    _optimizers(session)
    _scalers(session)
    _zero_grad(session)
    _backward(session)
    _clipping(session)
    _schedulers(session)
    _ddp(session)
    _scripting(session)
    _groups()
    watch_ddp_class(session)


def _groups() -> None:
    """A group is left once its threads have dropped what they hold: what is freed after it must not wait for them."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def destroy_process_group(*args: Any, **kwargs: Any) -> Any:
            settle.settle()
            return original(*args, **kwargs)

        return destroy_process_group

    for owner in (torch.distributed, distributed_c10d):
        wrap(owner, "destroy_process_group", make)


def wrap(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace `owner.name` by `make(original)`, keeping its name and docs; absent names are left alone."""
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, functools.wraps(original)(make(original)))


def _optimizers(session: Session) -> None:
    nesting = threading.local()

    def begin(optimizer: Any, args: Any, kwargs: Any) -> None:
        nesting.depth = getattr(nesting, "depth", 0) + 1
        if nesting.depth == 1:
            session.has_closure = any(callable(a) for a in (*args[1:], *kwargs.values()))
            with session.guarded("models"):
                session.models.search(optimizer)
            session.fire("on_optimizer_begin", optimizer)

    def end(optimizer: Any, args: Any, kwargs: Any) -> None:
        nesting.depth = max(0, getattr(nesting, "depth", 1) - 1)
        if nesting.depth == 0:
            session.fire("on_optimizer_end", optimizer)

    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    register_optimizer_step_pre_hook(begin)
    register_optimizer_step_post_hook(end)


def _scalers(session: Session) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            ran = []
            session.fire("on_scaler_begin")
            handle = optimizer.register_step_post_hook(lambda *_: ran.append(1)) if hasattr(optimizer, "register_step_post_hook") else None
            try:
                return original(self, optimizer, *args, **kwargs)
            finally:
                if handle is not None:
                    handle.remove()
                session.fire("on_scaler_step", self, optimizer, bool(ran) or handle is None)

        return step

    def make_scale(original: Callable[..., Any]) -> Callable[..., Any]:
        def scale(self: Any, outputs: Any) -> Any:
            session.scalers.add(self)
            return original(self, outputs)

        return scale

    wrap(torch.amp.GradScaler, "step", make)
    wrap(torch.amp.GradScaler, "scale", make_scale)


def _zero_grad(session: Session) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
            session.fire("on_zero_grad", self)
            return original(self, *args, **kwargs)

        return zero_grad

    wrap(torch.optim.Optimizer, "zero_grad", make)
    wrap(torch.nn.Module, "zero_grad", make)


def _backward(session: Session) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            session.fire("on_backward_begin", (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors))
            session.in_backward = True
            try:
                result = original(tensors, *args, **kwargs)
            finally:
                session.in_backward = False
            session.fire("on_backward_end")
            session.micro_batch += 1
            return result

        return backward

    wrap(torch.autograd, "backward", make)


def _clipping(session: Session) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def clip(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
            parameters = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            total = original(parameters, max_norm, *args, **kwargs)
            session.fire("on_clip", parameters, float(max_norm), total)
            return total

        return clip

    wrap(torch.nn.utils, "clip_grad_norm_", make)
    torch.nn.utils.clip_grad.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_


def _schedulers(session: Session) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self, "_step_count", 1):
                session.fire("on_scheduler_step", self)
            return original(self, *args, **kwargs)

        return step

    for owner in _family(torch.optim.lr_scheduler.LRScheduler):
        if "step" in vars(owner):
            wrap(owner, "step", make)


def _family(base: Any) -> list[Any]:
    return [base, *(c for child in base.__subclasses__() for c in _family(child))]


def _scripting(session: Session) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def script(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[0], torch.nn.Module) and session.models.hooks:
                session.models.release_hooks()
                session.fact("cannot-see", "forward", "the model was scripted by torch.jit.script")
            return original(*args, **kwargs)

        return script

    wrap(torch.jit, "script", make)


def _ddp(session: Session) -> None:
    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            original(self, *args, **kwargs)
            with session.guarded("models"):
                session.models.wrapped(self, caller())

        return init

    def make_no_sync(original: Callable[..., Any]) -> Callable[..., Any]:
        def no_sync(self: Any) -> Any:
            return _NoSync(original(self), session.models.of_wrapper(self), caller())

        return no_sync

    def make_join(original: Callable[..., Any]) -> Callable[..., Any]:
        def join(self: Any, *args: Any, **kwargs: Any) -> Any:
            session.fact("join", type(self.module).__name__, place=caller())
            return original(self, *args, **kwargs)

        return join

    wrap(DistributedDataParallel, "__init__", make)
    wrap(DistributedDataParallel, "no_sync", make_no_sync)
    wrap(DistributedDataParallel, "join", make_join)


class _NoSync(contextlib.AbstractContextManager[None]):
    """`no_sync()` that leaves a note of where it was called while it is active."""

    def __init__(self, inner: Any, model: Model | None, place: Place) -> None:
        self._inner, self._model, self._place = inner, model, place

    def __enter__(self) -> None:
        self._inner.__enter__()
        if self._model is not None:
            self._model.sync.in_no_sync, self._model.sync.no_sync_place = True, self._place

    def __exit__(self, *error: Any) -> Any:
        if self._model is not None:
            self._model.sync.in_no_sync = False
        return self._inner.__exit__(*error)
