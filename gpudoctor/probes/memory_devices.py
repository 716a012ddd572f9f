"""Numbers about memory: the caching allocator's, the card's, the process's; none of them waits for a device."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from typing import Any

import torch

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def host_row() -> dict[str, Any]:
    """The process's own memory on the host, as columns of mem_sample with device -1."""
    resident = _resident()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    total, free = _host()
    return {"device": -1, "allocated": resident, "peak_allocated": max(peak, resident), "total": total, "free": free}


def device_row(device: int, ask_driver: bool = True) -> dict[str, Any]:
    """What this process holds on a card, and, from the driver, what is left there."""
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    held = stats.get("reserved_bytes", {}).get("all", {})
    live = stats.get("allocated_bytes", {}).get("all", {})
    free, total = torch.cuda.mem_get_info(device) if ask_driver else (None, None)
    return {
        "device": device, "allocated": live.get("current", 0), "reserved": held.get("current", 0), "peak_allocated": live.get("peak", 0),
        "peak_reserved": held.get("peak", 0), "retries": stats.get("num_alloc_retries", 0), "free": free, "total": total,
    }


def pieces(device: int) -> dict[str, int]:
    """Free memory inside what the allocator holds, as columns of mem_sample; walks all blocks, so seldom.

    Segments that are wholly free do not count: the allocator can give those back.
    """
    largest = total = 0
    for segment in _segments():
        if segment["device"] == device and segment["allocated_size"]:
            idle = [b["size"] for b in segment["blocks"] if b["state"] == "inactive"]
            largest, total = max(largest, *idle, 0), total + sum(idle)
    return {"largest_free": largest, "in_pieces": total}


def _segments() -> list[dict[str, Any]]:
    try:
        return list(torch.cuda.memory_snapshot(include_traces=False))
    except TypeError:
        return list(torch.cuda.memory_snapshot())


def contexts() -> list[int]:
    """Devices on which this process has a primary CUDA context, by the driver; asking opens none."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return []
    found = []
    for ordinal in range(torch.cuda.device_count()):
        device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
        if driver.cuDeviceGet(ctypes.byref(device), ordinal) == 0 and driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0 and active.value:
            found.append(ordinal)
    return found


def processes() -> Iterator[dict[str, Any]]:
    """Who holds memory on which card, from NVML; nothing where NVML is absent or does not say."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return
    try:
        for device in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(device)
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle):
                if process.usedGpuMemory is not None:
                    yield {"device": device, "pid": int(process.pid), "bytes": int(process.usedGpuMemory)}
    except pynvml.NVMLError:
        return


def used_by_others(device: int) -> int | None:
    """Bytes on the card that belong to other processes, by NVML; None where it does not say who holds what."""
    rows = [r for r in processes() if r["device"] == _physical(device)]
    if not any(r["pid"] == os.getpid() for r in rows):
        return None
    return int(sum(r["bytes"] for r in rows if r["pid"] != os.getpid()))


def _physical(device: int) -> int:
    """The card's number for NVML; `CUDA_VISIBLE_DEVICES` may have renumbered it."""
    visible = [v.strip() for v in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if v.strip()]
    return int(visible[device]) if device < len(visible) and visible[device].isdigit() else device


def _resident() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def _host() -> tuple[int | None, int | None]:
    try:
        with open("/proc/meminfo") as file:
            rows = dict(line.split(":", 1) for line in file)
        return int(rows["MemTotal"].split()[0]) * 1024, int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None, None
