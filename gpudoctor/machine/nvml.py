"""Ask NVML everything once, into plain values; what a driver or card does not support is None."""

from __future__ import annotations

import contextlib
from typing import Any


def ask() -> dict[str, Any]:
    """Return {"driver", "cuda", "cards": [...], "pairs": [...]}, or {"error": words} where NVML does not answer.

    `cuda` is the driver's CUDA version as 12080; `pairs` hold NVML's topology level and P2P status codes.
    """
    try:
        import pynvml
    except ImportError:
        return {"error": "the Python package nvidia-ml-py is absent"}
    try:
        pynvml.nvmlInit()
    except Exception as error:  # every NVML error is an instance of a generated class
        return {"error": str(error)}
    try:
        return _answers(pynvml)
    except Exception as error:
        return {"error": str(error)}
    finally:
        with contextlib.suppress(Exception):
            pynvml.nvmlShutdown()


def _answers(nv: Any) -> dict[str, Any]:
    handles = [_try(nv, "nvmlDeviceGetHandleByIndex", i) for i in range(nv.nvmlDeviceGetCount())]
    cards = [{"index": i} if h is None else {"index": i} | _card(nv, h) for i, h in enumerate(handles)]
    seen = [(i, h) for i, h in enumerate(handles) if h is not None]
    pairs = [
        {
            "device": a, "peer": b, "level": _try(nv, "nvmlDeviceGetTopologyCommonAncestor", first, second),
            "read": _try(nv, "nvmlDeviceGetP2PStatus", first, second, nv.NVML_P2P_CAPS_INDEX_READ),
            "write": _try(nv, "nvmlDeviceGetP2PStatus", first, second, nv.NVML_P2P_CAPS_INDEX_WRITE),
        }
        for a, first in seen for b, second in seen if a != b
    ]
    driver, cuda = _try(nv, "nvmlSystemGetDriverVersion"), _try(nv, "nvmlSystemGetCudaDriverVersion_v2")
    return {"driver": _text(driver), "cuda": cuda, "cards": cards, "pairs": pairs}


def _card(nv: Any, h: Any) -> dict[str, Any]:
    memory, mig = _try(nv, "nvmlDeviceGetMemoryInfo", h), _try(nv, "nvmlDeviceGetMigMode", h)
    running = _try(nv, "nvmlDeviceGetComputeRunningProcesses", h)
    arch = _try(nv, "nvmlDeviceGetCudaComputeCapability", h)
    return {
        "name": _text(_try(nv, "nvmlDeviceGetName", h)), "uuid": _text(_try(nv, "nvmlDeviceGetUUID", h)),
        "bus_id": _text(getattr(_try(nv, "nvmlDeviceGetPciInfo", h), "busId", None)),
        "memory_total": getattr(memory, "total", None), "memory_used": getattr(memory, "used", None),
        "arch": None if arch is None else list(arch), "mig": None if mig is None else mig[0],
        "gen": _try(nv, "nvmlDeviceGetCurrPcieLinkGeneration", h), "gen_max": _try(nv, "nvmlDeviceGetMaxPcieLinkGeneration", h),
        "gen_card": _try(nv, "nvmlDeviceGetGpuMaxPcieLinkGeneration", h),
        "width": _try(nv, "nvmlDeviceGetCurrPcieLinkWidth", h), "width_max": _try(nv, "nvmlDeviceGetMaxPcieLinkWidth", h),
        "display": _try(nv, "nvmlDeviceGetDisplayActive", h),
        "power_limit": _try(nv, "nvmlDeviceGetEnforcedPowerLimit", h), "power_default": _try(nv, "nvmlDeviceGetPowerManagementDefaultLimit", h),
        "nvlinks": _nvlinks(nv, h),
        "processes": None if running is None else [[p.pid, p.usedGpuMemory] for p in running],
    }


def _nvlinks(nv: Any, h: Any) -> list[str]:
    """Bus ids at the other end of each active link ("" where the driver does not tell)."""
    ends = []
    for link in range(getattr(nv, "NVML_NVLINK_MAX_LINKS", 18)):
        state = _try(nv, "nvmlDeviceGetNvLinkState", h, link)
        if state is None:
            break
        if state:
            ends.append(_text(getattr(_try(nv, "nvmlDeviceGetNvLinkRemotePciInfo", h, link), "busId", None)) or "")
    return ends


def _try(nv: Any, name: str, *arguments: Any) -> Any:
    """The answer, or None: NVML raises a class for each code, and an older binding lacks the function."""
    try:
        return getattr(nv, name)(*arguments)
    except Exception:
        return None


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
