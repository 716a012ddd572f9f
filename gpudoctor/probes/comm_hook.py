"""DDP's gradient all-reduce as seen from inside: a hook around the user's own, or around DDP's default."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from gpudoctor.probes.models import Model
    from gpudoctor.probes.session import Session


class Watcher(Protocol):
    """Who wants to see buckets."""

    def before(self, model: Model, bucket: dist.GradBucket, path: str) -> None: ...

    def sent(self, model: Model, bucket: dist.GradBucket, future: Any) -> None: ...


class CommHook:
    """Stands where DDP expects a comm hook; hands each bucket to the user's hook if there is one, else does what DDP does.

    A user's hook that is registered later takes its place inside. DDP's default multiplies by 1/world and sums; so does
    this, to the bit.
    """

    def __init__(self, session: Session, model: Model, watcher: Watcher, reducer: Any) -> None:
        self.session, self.model, self.watcher, self.reducer_id = session, model, watcher, id(reducer)
        self.user: tuple[Any, Callable[..., Any]] | None = None
        self.builtin: Any = None
        self.active_ranks: Any = None

    @property
    def path(self) -> str:
        """ddp for DDP's own reduction, hook for a user's."""
        return "hook" if self.user is not None or self.builtin is not None else "ddp"

    def __call__(self, state: object, bucket: dist.GradBucket) -> Any:
        with self.session.guarded("Gradients"):
            self.watcher.before(self.model, bucket, self.path)
        if self.user is not None:
            future = self.user[1](self.user[0], bucket)
        else:
            future = self._default(bucket)
        with self.session.guarded("Gradients"):
            self.watcher.sent(self.model, bucket, future)
        return future

    def _default(self, bucket: dist.GradBucket) -> Any:
        ddp = self.model.ddp
        group = ddp.process_group if ddp is not None else dist.group.WORLD
        buffer = bucket.buffer()
        half = _compressed(self.builtin)
        sent = buffer.to(half) if half is not None else buffer
        sent.mul_(1.0 / self._divisor(ddp, group))
        future = original_all_reduce(sent, group=group, async_op=True).get_future()
        if half is None:
            return future.then(_first)
        return future.then(lambda done: buffer.copy_(done.value()[0]))

    def _divisor(self, ddp: DistributedDataParallel | None, group: Any) -> int:
        work = self.active_ranks
        if ddp is None or work is None or not ddp._join_config.enable or ddp._divide_by_initial_world_size:
            return int(group.size())
        work.wait()
        return max(1, int(work.get_future().value()[0].item()))


original_all_reduce = dist.all_reduce


def _first(done: Any) -> torch.Tensor:
    value: torch.Tensor = done.value()[0]
    return value


def _compressed(builtin: Any) -> torch.dtype | None:
    return torch.float16 if builtin is not None and "FP16" in str(builtin) else None


class CommHooks:
    """All hooks of ours that are in place, and what happens when the user registers one."""

    def __init__(self, session: Session, watcher: Watcher) -> None:
        self._session, self._watcher = session, watcher
        self._hooks: dict[int, CommHook] = {}
        self._register = dist._register_comm_hook
        self._register_builtin = dist._register_builtin_comm_hook
        dist._register_comm_hook = self._users_hook
        dist._register_builtin_comm_hook = self._users_builtin
        self._watch_join()

    def install(self, model: Model) -> CommHook | None:
        """Put our hook into the model's reducer unless there is one already; None where DDP does not allow it."""
        ddp = model.ddp
        if ddp is None:
            return None
        reducer = ddp.reducer
        hook = self._hooks.get(model.id)
        if hook is not None and hook.reducer_id == id(reducer):
            return hook
        hook = CommHook(self._session, model, self._watcher, reducer)
        if not self._put(model, hook, reducer):
            return None
        return hook

    def _put(self, model: Model, hook: CommHook, reducer: Any) -> bool:
        ddp = model.ddp
        if ddp is None or ddp._use_python_reducer or ddp.mixed_precision is not None:
            self._session.fact("cannot-see", "buckets", "DDP's reducer runs in compiled autograd or with its own mixed precision")
            return False
        try:
            self._register(reducer, None, hook)
        except RuntimeError as error:
            self._session.fact("cannot-see", "buckets", str(error).splitlines()[0])
            return False
        self._hooks[model.id] = hook
        return True

    def _find(self, reducer: Any) -> tuple[Model | None, CommHook | None]:
        for model in self._session.models:
            ddp = model.ddp
            if ddp is not None and ddp.reducer is reducer:
                hook = self._hooks.get(model.id)
                return model, hook if hook is not None and hook.reducer_id == id(reducer) else None
        return None, None

    def _users_hook(self, reducer: Any, state: object, hook: Callable[..., Any]) -> None:
        model, ours = self._find(reducer)
        if model is None or (ours is not None and ours.path == "hook"):
            self._register(reducer, state, hook)
            return
        if ours is None:
            ours = CommHook(self._session, model, self._watcher, reducer)
            if not self._put(model, ours, reducer):
                self._register(reducer, state, hook)
                return
        ours.user = state, hook
        self._session.fact("comm-hook", getattr(hook, "__qualname__", type(hook).__name__))

    def _users_builtin(self, reducer: Any, kind: Any) -> None:
        model, ours = self._find(reducer)
        if model is None or ours is None or ours.path == "hook":
            self._register_builtin(reducer, kind)
            return
        ours.builtin = kind
        self._session.fact("comm-hook", str(kind))

    def _watch_join(self) -> None:
        from torch.distributed.algorithms.join import Join

        original = Join.notify_join_context

        def notify(joinable: Any) -> Any:
            work = original(joinable)
            if work is not None and isinstance(joinable, DistributedDataParallel):
                model = self._session.models.of_wrapper(joinable)
                if model is not None and model.id in self._hooks:
                    self._hooks[model.id].active_ranks = work
            return work

        Join.notify_join_context = staticmethod(notify)
