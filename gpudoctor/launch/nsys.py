"""Nsight Systems around a launch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpudoctor.launch.command import Launch
from gpudoctor.rundir import RunDir

FINISH_S = 120.0


def under_nsys(launch: Launch, run: RunDir, nsys: Path) -> Launch:
    """The same launch under `nsys profile`: CUDA and NVTX, no CPU sampling, one report for all ranks of this host."""
    argv = (str(nsys), "profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(run.capture.absolute() / "run"), *launch.argv)
    return replace(launch, argv=argv, finish_s=FINISH_S)
