"""Turn a Python process into a watched rank at the moment it becomes one.

That moment is `init_process_group`, or the first optimizer step of a process that never calls it. Until then a process
pays for one entry in `sys.meta_path`; launchers, workers and helpers never pay more.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudoctor.launch.rank import Rank
    from gpudoctor.probes.settings import ProbeSettings

_C10D, _OPTIMIZER = "torch.distributed.distributed_c10d", "torch.optim.optimizer"
MARK = "GPUDOCTOR_RANK_PID"


def arm(settings: ProbeSettings | None = None) -> None:
    """Wait for this process to become a rank; `settings` default to those in the environment."""
    waiting: dict[str, Callable[[ModuleType], None]] = {_C10D: functools.partial(_wrap_init, settings=settings), _OPTIMIZER: functools.partial(_wait_for_step, settings=settings)}
    for name in list(waiting):
        if (module := sys.modules.get(name)) is not None:
            waiting.pop(name)(module)
            if name == _C10D and "torch.distributed" in sys.modules:
                sys.modules["torch.distributed"].init_process_group = module.init_process_group  # type: ignore[attr-defined]
    if waiting:
        sys.meta_path.insert(0, _AfterImport(waiting))


def become_rank(settings: ProbeSettings | None, rank: int, world_size: int, redirect: bool = True) -> Rank | None:
    """Begin to watch this process as `rank`; None if it, or the process that started it, is watched already."""
    if MARK in os.environ:
        return None
    from gpudoctor.launch.rank import Rank
    from gpudoctor.probes.settings import from_environment

    settings = settings or from_environment()
    if settings is None:
        return None
    watched = Rank(replace(settings, rank=rank, world_size=world_size))
    watched.begin(redirect and bool(settings.beats))
    end_with_process(watched)
    return watched


def end_with_process(rank: Rank) -> None:
    """Take the rank's last words when the process ends, in every way that Python can notice."""
    previous = sys.excepthook

    def on_exception(kind: type[BaseException], error: BaseException, tb: Any) -> None:
        rank.last_words(error)
        previous(kind, error, tb)

    def at_exit() -> None:
        rank.last_words(_in_flight())
        rank.finish()

    sys.excepthook = on_exception
    atexit.register(at_exit)
    from multiprocessing import parent_process, util

    if parent_process() is not None:
        util.Finalize(None, at_exit, exitpriority=100)


def _in_flight() -> BaseException | None:
    """The exception that is ending a multiprocessing child; torch's spawn turns it into SystemExit(1)."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit) and error.code and isinstance(error.__context__, Exception):
        return error.__context__
    return error


def _wrap_init(module: ModuleType, settings: ProbeSettings | None) -> None:
    original: Callable[..., Any] = module.init_process_group

    @functools.wraps(original)
    def init_process_group(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            become_rank(settings, module.get_rank(), module.get_world_size())
        except Exception as error:
            print(f"gpudoctor: this rank is not watched: {error!r}", file=sys.stderr)
        return result

    module.init_process_group = init_process_group  # type: ignore[attr-defined]


def _wait_for_step(module: ModuleType, settings: ProbeSettings | None) -> None:
    def first_step(*_: Any) -> None:
        hooks = module.__dict__["_global_optimizer_pre_hooks"]
        # The optimizer iterates over this dictionary right now; probes put their hooks into a fresh one.
        module.__dict__["_global_optimizer_pre_hooks"] = type(hooks)((k, h) for k, h in hooks.items() if h is not first_step)
        c10d = sys.modules.get(_C10D)
        if MARK in os.environ or (c10d is not None and c10d.is_initialized()):
            return
        try:
            become_rank(settings, int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
        except Exception as error:
            print(f"gpudoctor: this process is not watched: {error!r}", file=sys.stderr)

    module.register_optimizer_step_pre_hook(first_step)


class _AfterImport(MetaPathFinder):
    """Calls a function on a module right after it was imported, once."""

    def __init__(self, waiting: dict[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        then = self._waiting.pop(name)
        if not self._waiting:
            sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, then)
        return spec


class _Loader(Loader):
    """The real loader, and then `then(module)`."""

    def __init__(self, real: Loader, then: Callable[[ModuleType], None]) -> None:
        self._real, self._then = real, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._real
        if module.__spec__ is not None:
            module.__spec__.loader = self._real
        self._real.exec_module(module)
        self._then(module)
