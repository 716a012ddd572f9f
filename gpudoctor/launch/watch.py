"""`gpudoctor.watch()`: examine a run that `gpudoctor run` cannot start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from gpudoctor.launch.hooking import MARK, arm, become_rank
from gpudoctor.probes.settings import ProbeSettings, from_environment
from gpudoctor.rundir import RunDir

FOLDER = "GPUDOCTOR_RUN"
_JOB_NAMES = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_PORT")


def watch(out: str | Path | None = None, *, nvtx: bool = True, tensorboard: bool = True, gradients: bool = True,
          sanitize: bool = False, overhead_budget: float | None = None) -> Path:
    """Watch this process from here on as a rank; call it first thing in the script, in every rank.

    Returns the run folder, which `gpudoctor analyze` reads when the run is over. All ranks of a job must agree on `out`;
    without it the folder is named after the job; processes started from here on inherit it. Inside `gpudoctor run` this does nothing but return its folder.
    """
    inside = from_environment()
    if inside is not None:
        return inside.folder
    run = RunDir.create(Path(out if out is not None else os.environ.get(FOLDER) or Path("gpudoctor-runs") / f"watch-{_job()}"))
    os.environ[FOLDER] = str(run.root.absolute())
    settings = ProbeSettings(out=str(run.root.absolute()), nvtx=nvtx, tensorboard=tensorboard, gradients=gradients, sanitize=sanitize, overhead_budget=overhead_budget)
    if MARK in os.environ:
        return run.root
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    if c10d is not None and c10d.is_initialized():
        become_rank(settings, c10d.get_rank(), c10d.get_world_size())
    elif os.environ.get("RANK", "").isdigit() and os.environ.get("WORLD_SIZE", "").isdigit():
        become_rank(settings, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        arm(settings)
    return run.root


def _job() -> str:
    name = next((os.environ[v] for v in _JOB_NAMES if os.environ.get(v, "none") != "none"), str(os.getpid()))
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in name)
