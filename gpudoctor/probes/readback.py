"""Numbers from a device to the host without waiting: copied into pinned memory, handed on once they have arrived."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

MAX_PENDING = 4096

Values = list[Any]


class Readback:
    """A queue of small copies under way; values are handed on in the order they were asked for."""

    def __init__(self) -> None:
        self._pending: deque[tuple[torch.Tensor, Any, Callable[[Values], None]]] = deque()
        self.lost = 0

    def later(self, values: torch.Tensor, then: Callable[[Values], None]) -> None:
        """Call `then(list)` with the numbers of a 1-D tensor: at once on a CPU, else when they have come."""
        if values.device.type == "cpu":
            then(values.tolist())
            return
        if values.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            self.lost += 1
            return
        if len(self._pending) >= MAX_PENDING:
            self.lost += 1
            return
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        host.copy_(values, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(values.device))
        self._pending.append((host, arrived, then))

    def poll(self) -> None:
        """Hand on whatever has arrived."""
        while self._pending and self._pending[0][1].query():
            host, _, then = self._pending.popleft()
            then(host.tolist())

    def wait(self, seconds: float = 2.0) -> None:
        """At the end of the run: wait for the rest, but not for a device that hangs."""
        until = time.monotonic() + seconds
        while self._pending and time.monotonic() < until:
            self.poll()
            if self._pending:
                time.sleep(0.001)
        self.lost += len(self._pending)
        self._pending.clear()
