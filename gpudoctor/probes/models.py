"""The models of a script: those that DDP wraps, and those found behind an optimizer."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gpudoctor.probes.frames import NOWHERE, Place
from gpudoctor.probes.watch_forward import Forwards, watch_plain

if TYPE_CHECKING:
    from gpudoctor.probes.session import Session


@dataclass(eq=False)
class Model:
    """One model. `kind` is ddp, plain, fsdp or dp; parameter i of `params` has the id `first_id + i`."""

    id: int
    kind: str
    module: weakref.ref[nn.Module]
    wrapper: weakref.ref[nn.Module] | None
    first_id: int
    names: list[str]
    params: list[nn.Parameter]
    place: Place = NOWHERE
    group: tuple[int, ...] = ()
    buckets: dict[int, int] = field(default_factory=dict)
    wraps: int = 1
    compiled: bool = False
    forwards: Forwards = field(default_factory=Forwards)
    sync: Sync = field(default_factory=lambda: Sync())
    _index: dict[int, int] = field(default_factory=dict)

    @property
    def ddp(self) -> DistributedDataParallel | None:
        """The living DDP wrapper, if there is one."""
        wrapper = self.wrapper() if self.wrapper is not None else None
        return wrapper if isinstance(wrapper, DistributedDataParallel) else None

    @property
    def comparable(self) -> bool:
        """True if every rank should hold the same numbers in its parameters."""
        return self.kind in ("ddp", "plain")

    def index(self) -> dict[int, int]:
        """Position of each parameter, by the id of its object."""
        if len(self._index) != len(self.params):
            self._index = {id(p): i for i, p in enumerate(self.params)}
        return self._index


@dataclass
class Sync:
    """How one model's gradients were reduced since its last optimizer step, and how the running backward is to be."""

    flag: bool = True
    in_no_sync: bool = False
    no_sync_place: Place = NOWHERE
    buckets: int = 0
    backwards: int = 0
    last_synced: bool = False
    last_flag: bool = True
    manual: int = 0
    reduced: int = 0

    def clear(self) -> None:
        """The optimizer has stepped."""
        self.buckets = self.backwards = self.manual = self.reduced = 0
        self.last_synced, self.last_flag = False, True


class Models:
    """All models seen so far, in order of wrapping or finding."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._models: list[Model] = []
        self._known: set[int] = set()
        self._searched: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._next_id = 0
        self._of_wrapper: weakref.WeakKeyDictionary[nn.Module, Model] = weakref.WeakKeyDictionary()
        self.hooks: list[Any] = []

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models)

    def of_module(self, module: nn.Module) -> Model | None:
        """The model whose inner module this is."""
        return next((m for m in self._models if m.module() is module), None)

    def of_wrapper(self, wrapper: nn.Module) -> Model | None:
        """The model inside a DDP wrapper."""
        return self._of_wrapper.get(wrapper)

    def release_hooks(self) -> None:
        """Take our hooks off plain models, whose forwards are then no longer seen."""
        for handle in self.hooks:
            handle.remove()
        self.hooks.clear()

    def wrapped(self, ddp: DistributedDataParallel, place: Place) -> Model:
        """A DDP wrapper was made; its model is new, or known and wrapped anew."""
        inner = ddp.module
        model = self.of_module(inner)
        if model is None:
            model = self._take("ddp", inner, place)
        elif model.kind == "ddp":
            model.wraps += 1
        model.kind, model.wrapper, model.group, model.place = "ddp", weakref.ref(ddp), group_ranks(ddp.process_group), place
        self._of_wrapper[ddp] = model
        self._session.fire("on_model", model)
        return model

    def search(self, optimizer: torch.optim.Optimizer) -> None:
        """Find the modules that own this optimizer's parameters, once for each optimizer."""
        if optimizer in self._searched:
            return
        self._searched.add(optimizer)
        wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if wanted <= self._known:
            return
        for root, shell in _roots(wanted - self._known):
            if self.of_module(root) is None:
                model = self._take(_kind(root), root, NOWHERE)
                model.compiled = shell is not None or getattr(root, "_compiled_call_impl", None) is not None
                watch_plain(self._session, model, root if shell is None else shell)
                self._session.fire("on_model", model)

    def _take(self, kind: str, module: nn.Module, place: Place) -> Model:
        named = [(n.removeprefix("_orig_mod."), p) for n, p in module.named_parameters()]
        model = Model(len(self._models), kind, weakref.ref(module), None, self._next_id, [n for n, _ in named], [p for _, p in named], place)
        weakref.finalize(module, model.params.clear)
        self._next_id += len(named)
        self._known.update(id(p) for _, p in named)
        self._models.append(model)
        return model


def group_ranks(group: Any) -> tuple[int, ...]:
    """Global ranks of a process group, empty if they are not known."""
    dist = torch.distributed
    if not (dist.is_available() and dist.is_initialized()):
        return ()
    try:
        return tuple(dist.get_process_group_ranks(group if group is not None else dist.group.WORLD))
    except (RuntimeError, ValueError, KeyError, TypeError):
        return ()


def is_sharded(parameter: torch.Tensor) -> bool:
    """True for a DTensor: the rank holds only a piece, or a replica that DTensor looks after."""
    return hasattr(parameter, "device_mesh")


def _kind(module: nn.Module) -> str:
    if any(is_sharded(p) for p in module.parameters()) or type(module).__name__ == "FullyShardedDataParallel":
        return "fsdp"
    return "dp" if isinstance(module, nn.DataParallel) else "plain"


def _roots(wanted: set[int]) -> list[tuple[nn.Module, nn.Module | None]]:
    """Outermost living modules that own a wanted parameter, each with the compiled shell around it."""
    modules = [o for o in gc.get_objects() if issubclass(type(o), nn.Module)]
    owners = [m for m in modules if _owns(m.parameters(), wanted)]
    shells = {id(m._modules["_orig_mod"]): m for m in owners if "_orig_mod" in m._modules}
    outer = [m for m in owners if "_orig_mod" not in m._modules and not isinstance(m, DistributedDataParallel)]
    inner = {id(c) for m in outer for c in m.modules() if c is not m}
    return [(m, shells.get(id(m))) for m in outer if id(m) not in inner]


def _owns(parameters: Iterable[nn.Parameter], wanted: set[int]) -> bool:
    return any(id(p) in wanted for p in parameters)
