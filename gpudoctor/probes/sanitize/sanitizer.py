"""The parts put together: a detector, the mode that feeds it and the hooks on CUDA; switched on and off by step."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

from gpudoctor.probes.memory_devices import contexts
from gpudoctor.probes.sanitize.detector import Detector
from gpudoctor.probes.sanitize.hooks import Hooks
from gpudoctor.probes.sanitize.mode import SanitizeMode
from gpudoctor.probes.sanitize.races import Races


class Sanitizer:
    """One in a process; needs CUDA. `muted()` is true while the doctor itself computes."""

    def __init__(self, muted: Callable[[], bool] = lambda: False) -> None:
        self.detector = Detector()
        fresh: list[int] = []
        hooks = Hooks(self.detector, fresh)
        self.mode = SanitizeMode(self.detector, hooks.stream_of, fresh, muted)
        self.mode.on_capture = lambda stream: stream > 0 and torch.cuda.is_current_stream_capturing()
        hooks.mode = self.mode
        self._fresh = fresh
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._look_away)
        _skip_in_dynamo(SanitizeMode)

    def _look_away(self) -> None:
        """Workers of a DataLoader have no streams to watch."""
        self.mode.off = True

    @property
    def races(self) -> Races:
        return self.detector.races

    @property
    def active(self) -> bool:
        return self._entered and not self.mode.off

    _entered = False

    def switch_on(self) -> None:
        """Watch from here on; what ran before is waited for, so that nothing unseen can matter."""
        for device in contexts():
            torch.cuda.synchronize(device)
        self._fresh.clear()
        self.detector.all_is_done()
        self.mode.off = False
        if not self._entered:
            self.mode.__enter__()
            self._entered = True

    def switch_off(self) -> None:
        """Stop watching; where the user's own dispatch mode lies above ours, ours stays but looks away."""
        self.mode.settle()
        self.mode.off = True
        self._fresh.clear()
        if self._entered and _get_current_dispatch_mode() is self.mode:
            self.mode.__exit__(None, None, None)
            self._entered = False


def _skip_in_dynamo(mode: type[SanitizeMode]) -> None:
    """Tell the compiler not to trace our own functions."""
    try:
        from torch._C._dynamo.eval_frame import skip_code  # type: ignore[attr-defined]
    except ImportError:
        return
    for function in vars(mode).values():
        if hasattr(function, "__code__"):
            skip_code(function.__code__)
