"""Nsight Systems around a launch: where it is, and how it is called."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpudoctor.launch.command import Launch
from gpudoctor.rundir import RunDir

_PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys", "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys", "/usr/local/cuda*/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys", "/usr/lib/nsight-systems/target-linux-*/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys", "/usr/local/cuda*/nsight-systems*/bin/nsys",
)
FINISH_S = 120.0


def find(environment: Mapping[str, str] | None = None) -> Path | None:
    """The nsys to use: `$NSYS`, then PATH, then the newest in the usual folders; None if there is none."""
    environment = os.environ if environment is None else environment
    if named := environment.get("NSYS"):
        found = shutil.which(named)
        return Path(found) if found else None
    if found := shutil.which("nsys", path=environment.get("PATH")):
        return Path(found)
    for pattern in _PLACES:
        for path in sorted(Path("/").glob(pattern.lstrip("/")), reverse=True):
            if os.access(path, os.X_OK):
                return path
    return None


def wrap(launch: Launch, run: RunDir, nsys: Path | None = None) -> Launch:
    """The same launch under `nsys profile`: CUDA and NVTX, no CPU sampling, one report for all ranks of this host."""
    nsys = nsys or find()
    assert nsys is not None
    argv = (str(nsys), "profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(run.capture.absolute() / "run"), *launch.argv)
    return replace(launch, argv=argv, finish_s=FINISH_S)
