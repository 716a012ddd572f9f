"""Memory of each card and rank by step and phase; who else is on the card; what happened when it ran out."""

from __future__ import annotations

import contextlib
import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import torch

from gpudoctor.probes import memory_devices as devices
from gpudoctor.probes.frames import caller
from gpudoctor.probes.guard import guarded
from gpudoctor.probes.models import Model
from gpudoctor.probes.probe import Probe
from gpudoctor.probes.sensors import wrap

LAND_BYTES = 1 << 20
WALK_EVERY = 64


class Memory(Probe):
    """Writes mem_sample, device_process, mem_event (out of memory); facts: load-lands, cuda-context, model-device,
    dataparallel-used."""

    def start(self) -> None:
        self._cuda = torch.cuda.is_available()
        self._inputs = 0
        self._seen: set[str] = set()
        self._contexts: set[int] = set()
        self._walked: dict[int, int] = {}
        self._others: dict[int, int | None] = {}
        self._ran_out = False
        wrap(torch, "load", self._load)
        wrap(torch.nn.DataParallel, "__init__", self._data_parallel)
        if self._cuda:
            # Attaching sets CUDA up, which must not happen before the script does it (fork, set_device).
            torch.cuda._lazy_call(self._attach)

    def _attach(self) -> None:
        with contextlib.suppress(AttributeError, RuntimeError):
            torch._C._cuda_attach_out_of_memory_observer(self._out_of_memory)

    def on_model(self, model: Model) -> None:
        module = model.module()
        parameter = next(iter(module.parameters()), None) if module is not None else None
        if parameter is not None and parameter.device.type == "cuda":
            self.session.fact("model-device", name=str(parameter.device.index), value=float(parameter.device.index or 0))

    def on_forward_begin(self, model: Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._inputs += sum(t.numel() for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor))

    def on_forward_end(self, model: Model, output: Any) -> None:
        self._phase("forward")

    def on_backward_end(self) -> None:
        self._phase("backward")

    def on_optimizer_end(self, optimizer: Any) -> None:
        self._phase("optimizer")

    def on_step_end(self, step: int) -> None:
        if self.session.sampled:
            self._sample("step", step)
            if step in (2, 3) or step & (step - 1) == 0:
                self._look_around(step)
        self._inputs = 0
        self._seen.clear()

    def finish(self) -> None:
        self._sample("end", self.session.step)
        self._look_around(self.session.step)

    def _phase(self, phase: str) -> None:
        """The first time in a sampled step, on a card; on the host phases say little."""
        if self._cuda and self.session.sampled and phase not in self._seen:
            self._seen.add(phase)
            self._sample(phase, self.session.step)

    def _sample(self, phase: str, step: int) -> None:
        common = {"step": step, "phase": phase, "t": time.time_ns(), "inputs": self._inputs}
        self.session.emit("mem_sample", **common, **devices.host_row())
        if not self._cuda or not torch.cuda.is_initialized():
            return
        for device in range(torch.cuda.device_count()):
            if torch.cuda.memory_reserved(device):  # asking the driver about a card that is not in use would open a context there
                row = devices.device_row(device, phase in ("step", "end")) | {"used_by_others": self._others.get(device)}
                if phase in ("step", "end"):
                    row |= self._pieces(device, step, row, phase == "end")
                self.session.emit("mem_sample", **common, **row)

    def _pieces(self, device: int, step: int, row: dict[str, Any], always: bool) -> dict[str, int]:
        idle = row["reserved"] - row["allocated"]
        last = self._walked.get(device, -WALK_EVERY)
        if idle < 1 << 26 or not (always or step - last >= WALK_EVERY):
            return {}
        self._walked[device] = step
        return devices.pieces(device)

    def _look_around(self, step: int) -> None:
        if not self._cuda:
            return
        for row in devices.processes():
            self.session.emit("device_process", step=step, owner_rank=self.session.rank if row["pid"] == os.getpid() else None, **row)
        for device in devices.contexts():
            self._others[device] = devices.used_by_others(device)
            if device not in self._contexts:
                self._contexts.add(device)
                self.session.fact("cuda-context", name=str(device), value=float(device))

    def _load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(*args: Any, **kwargs: Any) -> Any:
            watch = self._cuda and torch.cuda.is_initialized()
            before = _held() if watch else []
            result = original(*args, **kwargs)
            if watch:
                with guarded(self, "load"):
                    for device, (was, now) in enumerate(zip(before, _held(), strict=True)):
                        if now - was >= LAND_BYTES:
                            self.session.fact("load-lands", str(device), str(torch.cuda.current_device()), caller(), float(now - was))
            return result

        return load

    def _data_parallel(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def init(module: Any, *args: Any, **kwargs: Any) -> None:
            original(module, *args, **kwargs)
            with guarded(self, "DataParallel"):
                self.session.fact("dataparallel-used", place=caller(), value=float(len(getattr(module, "device_ids", None) or ())))

        return init

    def _out_of_memory(self, device: int, asked: int, held: int, free: int) -> None:
        """Called by the allocator before it raises; keeps the first snapshot, and a row for each time."""
        session = self.session
        with session.counted(), contextlib.suppress(Exception):
            place = caller()
            session.recorder.add("mem_event", {
                "rank": session.rank, "device": device, "action": "oom", "bytes": asked, "device_free": free, "t": time.time_ns(), "step": session.step, **place.columns(),
            })
            row = devices.device_row(device) | devices.pieces(device)
            session.recorder.add("mem_sample", {"rank": session.rank, "step": session.step, "phase": "oom", "t": time.time_ns(), "inputs": self._inputs, **row})
            if not self._ran_out:
                self._ran_out = True
                folder = session.settings.folder / "capture"
                with open(folder / f"memory.rank{session.rank}.pickle", "wb") as file:
                    pickle.dump(torch.cuda.memory._snapshot(device), file)
            session.recorder.flush()


def _held() -> list[int]:
    return [torch.cuda.memory_reserved(d) for d in range(torch.cuda.device_count())]
