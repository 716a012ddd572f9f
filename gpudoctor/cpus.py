"""How many CPUs this process may use."""

from __future__ import annotations

import os


def cpus() -> int:
    """CPUs this process is allowed on, where the system tells; else those of the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
