"""Which machine a baseline was measured on; times from unlike machines are not compared."""

from __future__ import annotations

import hashlib
import os
import platform
from contextlib import suppress
from pathlib import Path


def machine_facts() -> dict[str, str]:
    """Processor, cores, cards and driver: what decides how long a step takes."""
    facts = {"system": platform.system(), "machine": platform.machine(), "processor": _processor(), "cores": str(os.cpu_count())}
    facts.update({f"gpu{i}": name for i, name in enumerate(_gpus())})
    return facts


def fingerprint(facts: dict[str, str]) -> str:
    """Sixteen hex digits of the facts."""
    return hashlib.sha256("\n".join(f"{k}={v}" for k, v in sorted(facts.items())).encode()).hexdigest()[:16]


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _gpus() -> list[str]:
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            return [str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(i))) for i in range(pynvml.nvmlDeviceGetCount())]
        finally:
            pynvml.nvmlShutdown()
    except Exception:  # no driver, no library, a broken driver: NVML raises its own kinds
        return []
