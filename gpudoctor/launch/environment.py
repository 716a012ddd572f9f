"""Which environment variables may be recorded, and which the doctor sets in ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gpudoctor.launch.flight import STEM

_ALLOWED = re.compile(r"(NCCL|CUDA|TORCH|OMP|GLOO|PYTORCH|UCX|MKL)_[A-Z0-9_]*|CUBLAS_WORKSPACE_CONFIG|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK")
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|APIKEY|API_KEY|ACCESS_KEY|PRIVATE", re.IGNORECASE)


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of training libraries, by an allow-list; names that smell of a secret stay out even so."""
    return {k: v for k, v in environment.items() if _ALLOWED.fullmatch(k) and not _SECRET.search(k)}


def nccl_defaults(capture: Path, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """NCCL's log and flight recorder into the run folder, where the user did not choose otherwise.

    NCCL expands %h and %p in the log's name; torch appends the rank to the dump's. `folder` is the private one, for pipes.
    """
    prefix, dump = ("TORCH_FR", "DUMP_TEMP_FILE") if _torch_version() >= (2, 9) else ("TORCH_NCCL", "DEBUG_INFO_TEMP_FILE")
    buffer = f"{prefix}_{'BUFFER_SIZE' if prefix == 'TORCH_FR' else 'TRACE_BUFFER_SIZE'}"
    wanted = {buffer: "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": str(folder / STEM), f"{prefix}_{dump}": str(capture / "flight.rank")}
    if "NCCL_DEBUG" not in environment and "NCCL_DEBUG_FILE" not in environment:
        wanted |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,GRAPH,ENV,NET", "NCCL_DEBUG_FILE": str(capture / "nccl.%h.%p.log")}
    return {k: v for k, v in wanted.items() if k not in environment}


def _torch_version() -> tuple[int, ...]:
    """Major and minor of the torch in this environment, without importing it; zeros if there is none."""
    try:
        return tuple(int(n) for n in version("torch").split(".")[:2])
    except (PackageNotFoundError, ValueError):
        return (0, 0)
