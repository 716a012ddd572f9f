"""Where Nsight Systems is on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

PLACES = (
    "opt/nvidia/nsight-systems*/*/bin/nsys", "opt/nvidia/nsight-systems*/*/target-linux-*/nsys", "usr/local/cuda*/bin/nsys",
    "usr/lib/nsight-systems*/bin/nsys", "usr/lib/nsight-systems*/target-linux-*/nsys", "usr/local/cuda*/nsight-systems*/bin/nsys",
    "opt/nvidia/nsight-compute/*/host/target-linux-*/nsys", "Program Files/NVIDIA Corporation/Nsight Systems*/target-windows-x64/nsys.exe",
)


def find_nsys(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Path | None:
    """The nsys to use: `$NSYS`, then PATH, then the newest in the usual folders below `root`; None if there is none."""
    environment = os.environ if environment is None else environment
    if named := environment.get("NSYS"):
        found = shutil.which(named, path=environment.get("PATH"))
        return Path(found) if found else None
    if found := shutil.which("nsys", path=environment.get("PATH")):
        return Path(found)
    for pattern in PLACES:
        for path in sorted(root.glob(pattern), reverse=True):
            if os.access(path, os.X_OK):
                return path
    return None
