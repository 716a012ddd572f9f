"""DataLoaders: how long a batch is waited for, which samples each rank takes, in which order, and with whose randomness."""

from __future__ import annotations

import hashlib
import time
import weakref
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from gpudoctor.probes.frames import NOWHERE, Place, caller
from gpudoctor.probes.loader_seeds import watch_workers
from gpudoctor.probes.probe import Probe
from gpudoctor.probes.sensors import wrap

_MASK = (1 << 64) - 1


class Loaders(Probe):
    """Writes one row of loader for each pass over a DataLoader."""

    def start(self) -> None:
        self._ids: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        self._next = 0
        self._backwards = 0
        self._open: list[_Pass] = []
        self._beginning: _Pass | None = None
        self._made: weakref.WeakKeyDictionary[Any, Place] = weakref.WeakKeyDictionary()
        wrap(DataLoader, "__init__", self._making)
        wrap(DataLoader, "__iter__", self._iterating)
        wrap(_BaseDataLoaderIter, "_reset", self._resetting)
        wrap(_BaseDataLoaderIter, "__next__", self._advancing)
        watch_workers(self.session)

    def on_backward_end(self) -> None:
        self._backwards += 1

    def finish(self) -> None:
        for one in list(self._open):
            one.close(complete=False)

    def _making(self, original: Any) -> Any:
        def init(loader: Any, *args: Any, **kwargs: Any) -> None:
            with self.session.guarded("Loaders"):
                self._made.setdefault(loader, caller())
            original(loader, *args, **kwargs)

        return init

    def _iterating(self, original: Any) -> Any:
        def iterate(loader: Any) -> Any:
            one = None
            with self.session.guarded("Loaders"):
                one = self._beginning = self._begin(loader)
            try:
                iterator = original(loader)
            finally:
                self._beginning = None
            if one is not None and isinstance(iterator, _BaseDataLoaderIter):
                one.attach(iterator)
            return iterator

        return iterate

    def _begin(self, loader: Any) -> _Pass:
        number, epoch = self._ids.get(loader, (self._next, 0))
        self._next += loader not in self._ids
        self._ids[loader] = number, epoch + 1
        for left in [o for o in self._open if o.number == number]:
            left.close(complete=False)
        one = _Pass(self, loader, number, epoch, caller(), self._made.get(loader, NOWHERE))
        self._open.append(one)
        return one

    def _resetting(self, original: Any) -> Any:
        def reset(iterator: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(iterator, *args, **kwargs)
            if self._beginning is not None:
                self._beginning.attach(iterator)
            return result

        return reset

    def _advancing(self, original: Any) -> Any:
        def advance(iterator: Any) -> Any:
            one = getattr(iterator, "_gpudoctor_pass", None)
            if one is None or one.ended:
                return original(iterator)
            self.session.fire("on_data_begin")
            start = time.time_ns()
            try:
                batch = original(iterator)
            except StopIteration:
                one.close(complete=True)
                raise
            finally:
                self.session.fire("on_data_end")
            one.batches += 1
            self.session.fire("on_data", one.loader(), batch, time.time_ns() - start)
            return batch

        return advance

    def backwards(self) -> int:
        """Backward passes so far."""
        return self._backwards

    def done(self, one: _Pass) -> None:
        """The pass is over."""
        if one in self._open:
            self._open.remove(one)


class _Pass:
    """One pass over one loader."""

    def __init__(self, probe: Loaders, loader: Any, number: int, epoch: int, place: Place, made: Place) -> None:
        self.probe, self.number, self.epoch, self.place, self.made = probe, number, epoch, place, made
        self.loader = weakref.ref(loader)
        self.batches = self.samples = 0
        self.order = hashlib.blake2b(digest_size=8)
        self.members = 0
        self.backwards = probe.backwards()
        self.facts = _facts(loader)
        self.known = False
        self.ended = False

    def attach(self, iterator: Any) -> None:
        """Read the indices as the loader's own sampler hands them out; before any is taken."""
        if getattr(iterator, "_gpudoctor_pass", None) is self:
            return
        iterator._gpudoctor_pass = self
        indices = getattr(iterator, "_sampler_iter", None)
        if indices is not None and self.facts["map_style"]:
            self.known = True
            iterator._sampler_iter = self._listen(indices)

    def _listen(self, indices: Iterator[Any]) -> Iterator[Any]:
        for batch in indices:
            self._count(batch)
            yield batch

    def _count(self, batch: Any) -> None:
        with self.probe.session.guarded("Loaders"):
            items = batch if isinstance(batch, (list, tuple)) else [batch]
            try:
                self.order.update(repr([int(i) for i in items]).encode())
                self.members = (self.members + sum(hash((int(i), 7)) for i in items)) & _MASK
            except (TypeError, ValueError):
                self.known = False
            self.samples += len(items)

    def close(self, complete: bool) -> None:
        """Write the row."""
        if self.ended:
            return
        self.ended = True
        session, facts = self.probe.session, {k: v for k, v in self.facts.items() if k != "map_style"}
        session.emit(
            "loader", loader_id=self.number, epoch=self.epoch, batches=self.batches, samples=self.samples if self.known else None,
            index_fingerprint=self.order.hexdigest() if self.known else None, index_set=f"{self.members:016x}" if self.known else None,
            training=self.probe.backwards() > self.backwards, complete=complete, step=session.step, **facts, **self.place.columns(),
            **{f"made_{k}": v for k, v in self.made.columns().items()},
        )
        self.probe.done(self)


def _facts(loader: Any) -> dict[str, Any]:
    dataset = getattr(loader, "dataset", None)
    sampler = getattr(loader, "sampler", None)
    batch_sampler = getattr(loader, "batch_sampler", None)
    inner = getattr(batch_sampler, "sampler", None)
    chosen = _most_telling(sampler, batch_sampler, inner)
    length = _length(dataset)
    return {
        "sampler": type(chosen).__name__, "dataset": type(dataset).__name__, "length": length, "map_style": getattr(loader, "_dataset_kind", 0) == 0,
        "batch_size": getattr(loader, "batch_size", None) or getattr(batch_sampler, "batch_size", None) or -1,
        "num_workers": getattr(loader, "num_workers", 0), "pin_memory": bool(getattr(loader, "pin_memory", False)),
        "seed": _number(chosen, "seed"), "sampler_epoch": _number(chosen, "epoch"), "shuffle": bool(getattr(chosen, "shuffle", type(chosen).__name__ == "RandomSampler")),
        "sharded": any(hasattr(s, "num_replicas") or hasattr(s, "num_processes") for s in (sampler, batch_sampler, inner) if s is not None),
        "drop_last": bool(getattr(loader, "drop_last", False)),
    }


def _most_telling(*samplers: Any) -> Any:
    present = [s for s in samplers if s is not None]
    return next((s for s in present if hasattr(s, "num_replicas")), present[0] if present else None)


def _number(owner: Any, name: str) -> int:
    value = getattr(owner, name, -1)
    return int(value) if isinstance(value, int) else -1


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except TypeError:
        return -1
