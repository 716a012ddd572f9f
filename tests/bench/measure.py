"""Wall clock, CPU and peak memory of a command and everything it starts."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

SAMPLE_S = 0.05


@dataclass(frozen=True, slots=True)
class Cost:
    """One run: seconds of wall clock and CPU, peak proportional set size [MiB], exit code."""

    wall: float
    cpu: float
    memory: float
    code: int


def measure(*command: str, cwd: Path | None = None) -> Cost:
    """Run a command to its end; its output is thrown away."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    child = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = [0.0]
    watch = Thread(target=_watch, args=(child, peak), daemon=True)
    watch.start()
    code = child.wait()
    wall = time.perf_counter() - begin
    watch.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, peak[0], code)


def _watch(child: subprocess.Popen[bytes], peak: list[float]) -> None:
    while child.poll() is None:
        peak[0] = max(peak[0], _tree_mib(child.pid))
        time.sleep(SAMPLE_S)


def _tree_mib(root: int) -> float:
    total, waiting = 0, [root]
    while waiting:
        pid = waiting.pop()
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
            for task in os.listdir(f"/proc/{pid}/task"):
                waiting += map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
        except (OSError, ValueError):
            continue
    return total / 1024
