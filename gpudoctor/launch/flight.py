"""Ask NCCL's flight recorder in the ranks for its dumps, through the pipes that PyTorch listens on."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

STEM = "flight"


def request(folder: Path, capture: Path, wait_s: float = 6.0) -> None:
    """Write into each rank's pipe and wait until as many dumps lie in `capture`, at most `wait_s`; nothing without NCCL.

    PyTorch looks at its pipe every few seconds, from a thread of its own.
    """
    asked = 0
    for pipe in folder.glob(f"{STEM}*.pipe"):
        with suppress(OSError):
            fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            try:
                os.write(fd, b"1\n")
                asked += 1
            finally:
                os.close(fd)
    until = time.monotonic() + wait_s
    while asked and time.monotonic() < until and len(list(capture.glob("flight.rank*"))) < asked:
        time.sleep(0.1)
