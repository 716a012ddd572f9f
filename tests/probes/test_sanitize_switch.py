"""Switching the sanitizer on and off, without a card: CUDA's hooks are only placed, never called."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.probes.ranks import run_ranks

SCRIPT = """
import os
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.cuda import _gpu_trace
from gpudoctor.probes.sanitize.sanitizer import Sanitizer

sanitizer = Sanitizer()
assert not torch.cuda.is_initialized()
sanitizer.switch_on()
assert _get_current_dispatch_mode() is sanitizer.mode and sanitizer.active
sanitizer.switch_on()
sanitizer.switch_off()
assert _get_current_dispatch_mode() is None and not sanitizer.active

class Users(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

sanitizer.switch_on()
with Users():
    sanitizer.switch_off()
    assert isinstance(_get_current_dispatch_mode(), Users) and not sanitizer.active
    torch.ones(3) + 1
    sanitizer.switch_on()
    assert sanitizer.active
assert _get_current_dispatch_mode() is sanitizer.mode

heard = []
_gpu_trace.register_callback_for_event_creation(heard.append)
_gpu_trace.EventCreationCallbacks.fire_callbacks(5)
assert heard == [5]

child = os.fork()
if child == 0:
    os._exit(0 if sanitizer.mode.off else 1)
assert os.waitpid(child, 0)[1] == 0
assert torch.ones(3).numpy().tolist() == torch.ones(3).tolist()
sanitizer.switch_off()
assert sanitizer.mode.failures == 0
"""


def test_switching(tmp_path: Path) -> None:
    run_ranks(tmp_path, SCRIPT)
