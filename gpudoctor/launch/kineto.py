"""A window of steps under torch.profiler, inside the rank: the GPU's timeline where nsys is absent."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

WARMUP = 2


class Window:
    """Records `steps` optimizer steps after `after` of them, once, and writes them to `path` (a .json.gz)."""

    def __init__(self, path: Path, steps: int, after: int) -> None:
        self._path, self._last = path, after + WARMUP + steps
        self._schedule = torch.profiler.schedule(wait=after, warmup=WARMUP, active=steps, repeat=1)
        self._profile: Any = None
        self._seen = 0
        self._hook = register_optimizer_step_post_hook(self._on_step)

    def close(self) -> None:
        """Write what was recorded so far, if the run ended inside the window."""
        self._hook.remove()
        profile, self._profile = self._profile, None
        if profile is not None:
            try:
                profile.stop()
            except Exception as error:
                print(f"gpudoctor: torch.profiler could not finish: {error}", file=sys.stderr)

    def _on_step(self, *_: Any) -> None:
        """The first step starts the profiler: CUDA is set up by then, on the device that the script chose."""
        try:
            if self._profile is None:
                self._profile = self._start()
            else:
                with warnings.catch_warnings():  # about cycles; there is one
                    warnings.filterwarnings("ignore", "Warning: Profiler clears events")
                    self._profile.step()
            self._seen += 1
        except Exception as error:
            print(f"gpudoctor: torch.profiler is off: {error}", file=sys.stderr)
            self._profile = None
            self._hook.remove()
            return
        if self._seen > self._last:
            self.close()

    def _start(self) -> Any:
        from torch._C._profiler import _ExperimentalConfig

        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profile = torch.profiler.profile(
            activities=activities, schedule=self._schedule, on_trace_ready=self._write, with_stack=True,
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        )
        profile.start()
        return profile

    def _write(self, profile: Any) -> None:
        temporary = self._path.with_name(f".{os.getpid()}.{self._path.name}")
        try:
            profile.export_chrome_trace(str(temporary))
            temporary.replace(self._path)
        except (OSError, RuntimeError) as error:
            print(f"gpudoctor: the trace could not be written: {error}", file=sys.stderr)
            temporary.unlink(missing_ok=True)
