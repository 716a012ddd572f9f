"""What is started: torchrun's engine around the user's script, or the user's own launcher."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from gpudoctor.errors import MissingExtraError, UsageError
from gpudoctor.launch.environment import nccl_defaults
from gpudoctor.probes.settings import ProbeSettings
from gpudoctor.rundir import RunDir

HOOK = Path(__file__).parent / "hook"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command with its environment.

    `ends` is where torchrun's engine writes how ranks ended, None for other launchers; `finish_s` how long the
    capture around it may take to finish after the ranks are gone. `records` names the launcher's own file of rows;
    hosts that share a run folder each have their own.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    ends: Path | None
    finish_s: float = 0.0
    records: str = "launch.jsonl"


def torchrun(run: RunDir, settings: ProbeSettings, options: Sequence[str], script: str, arguments: Sequence[str],
             module: bool = False, environment: Mapping[str, str] | None = None) -> Launch:
    """Start `script` under torchrun's engine; `options` are torchrun's own."""
    ends = Path(settings.beats) / "ends.json"
    argv = (sys.executable, "-m", "gpudoctor.launch.agent", str(ends), *options, "-m", "gpudoctor.launch.bootstrap",
            *(["-m"] if module else []), script, *arguments)
    env = _environment(run, settings, environment)
    env.setdefault("OMP_NUM_THREADS", "1")
    return Launch(argv, env, ends)


def launcher(run: RunDir, settings: ProbeSettings, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Launch:
    """Start any other launcher; Python processes in it that become ranks find the hook on PYTHONPATH."""
    env = _environment(run, settings, environment)
    folder = Path(settings.beats) / "path"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").symlink_to(HOOK / "sitecustomize.py")
    (folder / "gpudoctor").symlink_to(Path(__file__).parents[1])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), env.get("PYTHONPATH", ""))))
    env["PYTHONUNBUFFERED"] = "1"
    return Launch(tuple(command), env, None)


def gpus() -> int:
    """GPUs that a rank on this host would see."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return 0
    try:
        import pynvml

        pynvml.nvmlInit()
        try:
            present = int(pynvml.nvmlDeviceGetCount())
        finally:
            pynvml.nvmlShutdown()
    except Exception:
        return 0
    return present if visible is None else min(present, len(visible.split(",")))


def _environment(run: RunDir, settings: ProbeSettings, environment: Mapping[str, str] | None) -> dict[str, str]:
    env = dict(os.environ if environment is None else environment)
    if gpus():
        env |= nccl_defaults(run.capture.absolute(), Path(settings.beats), env)
    env |= settings.to_environment()
    return env


def check_script(script: str, module: bool) -> None:
    """UsageError if there is no such script, MissingExtraError if this environment has no PyTorch to run it."""
    if not module and not Path(script).is_file():
        raise UsageError(f"{script}: no such script; give a Python file, or `-m MODULE`, or `-- LAUNCHER …` for another launcher")
    if find_spec("torch") is None:
        raise MissingExtraError("running a script needs PyTorch in this environment: pip install 'gpudoctor[run]'")


def check_launcher(command: str) -> None:
    """UsageError if there is no such command."""
    if shutil.which(command) is None:
        raise UsageError(f"{command}: no such command; install it or give its path")
