"""Sees forwards of models: on DDP's class, on the outermost module of plain models, on inner modules while in doubt."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpudoctor.probes.frames import NOWHERE, Place, caller

if TYPE_CHECKING:
    from gpudoctor.probes.models import Model
    from gpudoctor.probes.session import Session


@dataclass
class Forwards:
    """Forwards of one model in grad mode since the last step: through its outermost module, and past its wrapper."""

    depth: int = 0
    through: int = 0
    past: int = 0
    place: Place = NOWHERE
    past_place: Place = NOWHERE

    def clear(self) -> None:
        """A step has used them up."""
        self.depth = self.through = self.past = 0


def watch_ddp_class(session: Session) -> None:
    """Wrap `DistributedDataParallel.forward`, so that no wrapper instance carries hooks of ours into a pickle."""
    original = DistributedDataParallel.forward

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(self, *args, **kwargs)
        model = session.models.of_wrapper(self)
        if model is None or not _begin(session, model, args, kwargs):
            return original(self, *args, **kwargs)
        output = None
        try:
            output = original(self, *args, **kwargs)
            return output
        finally:
            _end(session, model, output)

    DistributedDataParallel.forward = forward


def watch_plain(session: Session, model: Model, outer: nn.Module) -> None:
    """Watch a model that no DDP wraps; `outer` is the compiled shell around it, or the module itself."""
    if getattr(outer, "_compiled_call_impl", None) is not None:
        return
    session.models.hooks += [
        outer.register_forward_pre_hook(_Hook(functools.partial(_plain_begin, session, weakref.ref(outer), model)), with_kwargs=True),
        outer.register_forward_hook(_Hook(functools.partial(_plain_end, session, weakref.ref(outer), model))),
    ]


def watch_past(model: Model, deep: bool) -> Callable[[], None]:
    """Watch the inner module (`deep`: every module below it) for forwards that do not come through DDP; returns the undo."""
    inner = model.module()
    modules = [] if inner is None else list(inner.modules()) if deep else [inner]
    handles = [m.register_forward_pre_hook(_Hook(functools.partial(_past, model))) for m in modules]

    def undo() -> None:
        for handle in handles:
            handle.remove()

    return undo


class _Hook:
    """A hook that turns into a picklable nothing when its module is copied or pickled."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> None:
        if not torch.compiler.is_compiling():
            self._function(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (sys.audit, "gpudoctor.hook")


def _begin(session: Session, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    state = model.forwards
    state.depth += 1
    if state.depth > 1:
        state.depth -= 1
        return False
    if torch.is_grad_enabled():
        state.through += 1
        if session.sampled:
            state.place = caller()
    session.fire("on_forward_begin", model, args, kwargs)
    return True


def _end(session: Session, model: Model, output: Any) -> None:
    model.forwards.depth = 0
    session.fire("on_forward_end", model, output)


def _plain_begin(session: Session, outer: Any, model: Model, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if model.kind != "ddp" and outer() is module:
        _begin(session, model, args, kwargs)


def _plain_end(session: Session, outer: Any, model: Model, module: nn.Module, args: Any, output: Any) -> None:
    if model.kind != "ddp" and outer() is module and model.forwards.depth:
        _end(session, model, output)


def _past(model: Model, module: nn.Module, args: tuple[Any, ...]) -> None:
    state = model.forwards
    if state.depth == 0 and torch.is_grad_enabled():
        state.past += 1
        if state.past == 1:
            state.past_place = caller()
