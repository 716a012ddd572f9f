"""The one object that probes share: which step it is, which models there are, where records go, what we cost."""

from __future__ import annotations

import contextlib
import os
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from gpudoctor.probes import heartbeat
from gpudoctor.probes.budget import Budget
from gpudoctor.probes.frames import NOWHERE, Place
from gpudoctor.probes.measure import Measure
from gpudoctor.probes.models import Model, Models
from gpudoctor.probes.probe import Probe
from gpudoctor.probes.proofs import Proofs
from gpudoctor.probes.readback import Readback
from gpudoctor.probes.recorder import Recorder
from gpudoctor.probes.settings import ProbeSettings

_HOOKS = (*(n for n in vars(Probe) if n.startswith("on_")), "finish")
_TABLES = ("fact", "step", "model", "param", "grad_stat", "bucket", "replica", "loss", "clip", "loader", "data_rng", "collective", "overhead")
MAX_FACTS = 2_000


class Session:
    """State of one instrumented rank.

    `step` counts completed steps of the primary optimizer; `sampled` says that this step is looked at closely.
    Times are `time.time_ns()` so that ranks of one host share a clock.
    """

    def __init__(self, settings: ProbeSettings, recorder: Recorder, measure: Measure | None = None) -> None:
        self.settings = settings
        self.recorder = recorder
        self.pid = os.getpid()
        self.rank = max(settings.rank, 0)
        self.world_size = max(settings.world_size, 1)
        cuda = torch.cuda.is_available()
        share = settings.overhead_budget if settings.overhead_budget is not None else (0.01 if cuda else 0.02)
        self.budget = Budget(share * 0.7, settings.sample_every)
        self.measure = measure or Measure()
        self.readback = Readback()
        self.models = Models(self)
        self.step = 0
        self.sampled = self._wants(0)
        self.spent_ns = 0
        self.detailed = self.sampled
        self.proofs: Proofs | None = None
        self.in_backward = self.has_closure = False
        self.scalers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.micro_batch = 0
        self.comm_ns = 0
        self._rare = Budget(share * 0.3, free_steps=3)
        self._rare_ns = 0
        self._depth = 0
        self._facts: dict[tuple[object, ...], dict[str, Any]] = {}
        self._hooks: dict[str, list[tuple[Probe, Callable[..., None]]]] = {n: [] for n in _HOOKS}
        self._finished = False
        self._entered = 0

    def start(self, probes: list[Probe]) -> None:
        """Take the probes in, in this order; every table that probes fill counts as captured from now on."""
        for table in _TABLES:
            self.recorder.add(table, {"rank": []})
        for probe in probes:
            self.add(probe)

    def add(self, probe: Probe) -> None:
        """Take one probe in; one that cannot start is left out, and that is recorded."""
        probe.session = self
        try:
            probe.start()
        except Exception as error:
            self._lost(probe, "start", error)
            return
        for name in _HOOKS:
            if getattr(type(probe), name) is not getattr(Probe, name):
                self._hooks[name].append((probe, getattr(probe, name)))

    def fire(self, hook: str, *args: Any) -> None:
        """Call one hook of every probe that has it; its time is counted, its exceptions end the probe, not the run."""
        hooks = self._hooks[hook]
        if not hooks:
            return
        with self.counted():
            for probe, function in tuple(hooks):
                try:
                    function(*args)
                except Exception as error:
                    self._lost(probe, hook, error)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the host time of the block as the doctor's own; blocks may nest."""
        outer = self._depth == 0
        self._depth += 1
        if outer:
            self._entered = time.perf_counter_ns()
        try:
            yield
        finally:
            self._depth -= 1
            if outer:
                self.spent_ns += time.perf_counter_ns() - self._entered

    @contextlib.contextmanager
    def guarded(self, who: str) -> Iterator[None]:
        """Count the block, and keep its exceptions from the script; each kind is recorded once."""
        with self.counted():
            try:
                yield
            except Exception as error:
                self.fact("probe-failed", who, f"{type(error).__name__}: {error}")

    @contextlib.contextmanager
    def rare(self) -> Iterator[None]:
        """Count the block as work of detailed steps, which have a budget of their own."""
        begin = time.perf_counter_ns()
        try:
            yield
        finally:
            self._rare_ns += time.perf_counter_ns() - begin

    @property
    def recording(self) -> bool:
        """True inside the window of steps that the user asked for."""
        s = self.settings
        return self.step >= s.first_step and (s.last_step < 0 or self.step <= s.last_step)

    def emit(self, table: str, **columns: Any) -> None:
        """Record rows of a canonical table; lists are columns, scalars are repeated; `rank` is added."""
        if self.recording or self._finished:
            self.recorder.add(table, {"rank": self.rank, **columns})

    def fact(self, kind: str, name: str = "", detail: str = "", place: Place = NOWHERE, value: float | None = None) -> None:
        """Record that something was seen. The same fact again only counts up, until the end of the run."""
        key = (kind, name, place.path, place.line)
        row = self._facts.get(key)
        if row is not None:
            row["count"] += 1
            row["last"] = self.step
            return
        if len(self._facts) >= MAX_FACTS:
            return
        columns = {"step": self.step, "kind": kind, "name": name, "detail": detail, "count": 1, **place.columns()}
        if value is not None:
            columns["value"] = value
        self._facts[key] = {**columns, "last": self.step, "told": 1}
        self.recorder.add("fact", {"rank": self.rank, **columns})

    def loss_scales(self) -> set[int]:
        """Data pointers of the scale tensors of every GradScaler in use."""
        scales = (getattr(s, "_scale", None) for s in self.scalers)
        return {t.data_ptr() for t in scales if isinstance(t, torch.Tensor)}

    def end_step(self, probe_ns: int, step_ns: int) -> None:
        """Close step `self.step` and open the next one."""
        sampled, detailed, interval = self.sampled, self.detailed, self.budget.interval
        self.fire("on_step_end", self.step)
        heartbeat.step(self.step)
        self.emit("overhead", step=self.step, probe_ns=probe_ns, step_ns=step_ns, interval=interval)
        self.budget.after(self.step, max(0, probe_ns - self._rare_ns), step_ns, sampled)
        self._rare.after(self.step, self._rare_ns, step_ns, detailed)
        self._rare_ns = self.comm_ns = self.micro_batch = 0
        self._retell_facts()
        self.step += 1
        self.sampled = self._wants(self.step)
        self.detailed = self.sampled and self._rare.samples(self.step)
        self.readback.poll()

    def finish(self) -> None:
        """Last words of every probe, then the recorder closes."""
        if self._finished:
            return
        self.fire("finish")
        self._finished = True
        with contextlib.suppress(Exception):
            self.readback.wait()
        self._retell_facts(always=True)
        if self.recorder.dropped:
            self.recorder.add("fact", {"rank": self.rank, "step": self.step, "kind": "records-dropped", "count": self.recorder.dropped})
        self.recorder.close()

    def _wants(self, step: int) -> bool:
        s = self.settings
        inside = step >= s.first_step and (s.last_step < 0 or step <= s.last_step)
        thinned = step < 1024 or step % (4 if step < 8192 else 16) == 0
        return inside and thinned and not self.recorder.stopped and self.budget.samples(step)

    def _retell_facts(self, always: bool = False) -> None:
        """Facts that came again are told again with the repeats, each time their number has doubled, and at the end."""
        for row in self._facts.values():
            more = row["count"] - row["told"]
            if more and (always or row["count"] >= 2 * row["told"]):
                row["told"] = row["count"]
                columns = {k: v for k, v in row.items() if k not in ("told", "last")}
                self.recorder.add("fact", {"rank": self.rank, **columns, "count": more, "step": row["last"]})

    def _lost(self, probe: Probe, hook: str, error: Exception) -> None:
        for hooks in self._hooks.values():
            hooks[:] = [(p, f) for p, f in hooks if p is not probe]
        self.fact("probe-failed", type(probe).__name__, f"{hook}: {type(error).__name__}: {error}")


__all__ = ["Model", "Session"]
