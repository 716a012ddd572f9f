"""Let native threads finish with Python before the interpreter ends.

A comm hook's callbacks run in a thread of gloo's, which drops them a moment after the main thread has its result. A thread
that still wants Python while the interpreter finalizes is unwound through C++ that must not throw: `terminate called without
an active exception`, and a script that came to its end dies of SIGABRT. DDP keeps the group's threads alive past
`destroy_process_group`, so nothing else waits for them.

The same thread drops the tensors of a finished collective, which takes the GIL. Whoever frees the last DDP meanwhile holds
the GIL and joins that thread: both wait for ever (torch 2.13, seen in stacks of a rank that hung after its last barrier).
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

LIMIT_S = 0.5
_PAUSE_S = 0.002
_LOOKS = 2


@cache
def settle_at_exit() -> None:
    """Have this process settle before its interpreter ends, once however often it is asked for."""
    atexit.register(settle)


def settle(limit_s: float = LIMIT_S) -> bool:
    """Give up the GIL until every other thread of this process sleeps, `limit_s` seconds at most; False if one still runs."""
    end = time.monotonic() + limit_s
    quiet = 0
    while quiet < _LOOKS:
        if time.monotonic() > end:
            return False
        time.sleep(_PAUSE_S)
        quiet = 0 if _others_run() else quiet + 1
    return True


def _others_run() -> bool:
    """True if another thread is on a CPU, or waits for one or for a disk; where the system does not tell, False."""
    own = threading.get_native_id()
    with suppress(OSError):
        for name in os.listdir("/proc/self/task"):
            with suppress(OSError):
                state = Path(f"/proc/self/task/{name}/stat").read_text("utf-8", "replace").rpartition(") ")[2][:1]
                if state in ("R", "D") and int(name) != own:
                    return True
    return False
