"""From the words of `gpudoctor run` to a finished run."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError, UsageError
from gpudoctor.launch.command import Launch, check_launcher, check_script, gpus, launcher, torchrun
from gpudoctor.launch.live import LiveLine
from gpudoctor.launch.nsys import under_nsys
from gpudoctor.launch.session import Session, private_folder, run_session
from gpudoctor.launch.surroundings import record_machine
from gpudoctor.nsight import find_nsys, why_no_report
from gpudoctor.probes.settings import ProbeSettings
from gpudoctor.rundir import RunDir


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run and how. `torchrun` holds torchrun's options by their Python names, None where not given."""

    command_line: tuple[str, ...]
    other_launcher: bool = False
    module: bool = False
    torchrun: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None
    capture: str = "auto"
    capture_steps: int = 10
    sanitize: bool = False
    overhead_budget: float | None = None
    nvtx: bool = True
    tensorboard: bool = True
    gradients: bool = True
    hang_timeout: float = 300.0

    def sources(self) -> tuple[Path, ...]:
        """The script, if the words name a Python file."""
        words = self.command_line if self.other_launcher else self.command_line[:1]
        return tuple(Path(w) for w in words if w.endswith(".py") and Path(w).is_file())[:1]

    @property
    def several_hosts(self) -> bool:
        """True if other hosts take part, whose runs may share this one's folder."""
        return self.torchrun.get("nnodes") not in (None, "1", "1:1")

    def torchrun_options(self) -> list[str]:
        """torchrun's command line, with the number of ranks filled in."""
        given = {k: v for k, v in self.torchrun.items() if v not in (None, False)}
        given.setdefault("nproc_per_node", str(gpus() or 2))
        words = []
        for name, value in given.items():
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        return words


def carry_out(plan: Plan, quiet_stdout: bool = False) -> tuple[RunDir, Session]:
    """Run the plan; with `quiet_stdout` all that the script prints goes to stderr."""
    _check(plan)
    capture, nsys = _capture(plan.capture)
    run = _folder(plan)
    if gpus():
        record_machine(run)
    with private_folder() as folder:
        settings = ProbeSettings(
            out=str(run.root.absolute()), beats=str(folder), nvtx=plan.nvtx, tensorboard=plan.tensorboard, gradients=plan.gradients,
            sanitize=plan.sanitize, overhead_budget=plan.overhead_budget, kineto=plan.capture_steps if capture == "kineto" else 0,
        )
        launch = _launch(plan, run, settings)
        if nsys is not None:
            launch = under_nsys(launch, run, nsys)
        with LiveLine(sys.stderr) as live:
            session = run_session(run, folder, launch, hang_timeout=plan.hang_timeout, show=_show(live, quiet_stdout), tick=live.update,
                                  argv=plan.command_line)
    return run, session


def _check(plan: Plan) -> None:
    if plan.other_launcher and plan.module:
        raise UsageError("-m names a module for torchrun's engine; after -- give the launcher's whole command")
    if plan.other_launcher:
        check_launcher(plan.command_line[0])
    else:
        check_script(plan.command_line[0], plan.module)


def _launch(plan: Plan, run: RunDir, settings: ProbeSettings) -> Launch:
    if plan.other_launcher:
        return launcher(run, settings, plan.command_line)
    launch = torchrun(run, settings, plan.torchrun_options(), plan.command_line[0], plan.command_line[1:], plan.module)
    return replace(launch, records=f"launch.{socket.gethostname()}.{os.getpid()}.jsonl") if plan.several_hosts else launch


def _capture(wanted: str) -> tuple[str, Path | None]:
    """The kind of capture, and the nsys that makes it."""
    if wanted not in ("auto", "nsys"):
        return wanted, None
    if wanted == "auto" and not gpus():
        return "probes", None
    nsys = find_nsys()
    if nsys is None:
        if wanted == "nsys":
            raise UsageError("--capture nsys: no nsys found on PATH, in $NSYS or in the usual folders; install Nsight Systems or choose another capture")
        return "kineto", None
    if why := why_no_report(nsys):
        if wanted == "nsys":
            raise UsageError(f"--capture nsys: {nsys} makes no reports ({why}); install Nsight Systems or choose another capture")
        print(f"gpudoctor: {nsys} makes no reports ({why}); torch.profiler captures instead", file=sys.stderr)
        return "kineto", None
    return "nsys", nsys


def _folder(plan: Plan) -> RunDir:
    stem = next((Path(w).stem for w in plan.command_line if w.endswith(".py")), Path(plan.command_line[0]).name)
    try:
        if plan.out is None:
            return RunDir.fresh(Path("gpudoctor-runs"), stem)
        if plan.out.is_dir() and any(plan.out.iterdir()) and not (plan.several_hosts and RunDir.is_run(plan.out)):
            raise UsageError(f"{plan.out}: is not empty; give a new folder for this run")
        return RunDir.create(plan.out)
    except OSError as error:
        raise InputError(f"{plan.out or 'gpudoctor-runs'}: cannot be written ({error.strerror}); give a folder with --out") from None


def _show(live: LiveLine, quiet_stdout: bool) -> Callable[[str, bytes], None]:
    def show(stream: str, data: bytes) -> None:
        target = sys.stdout if stream == "out" and not quiet_stdout else sys.stderr
        with live.aside(data):
            target.flush()
            target.buffer.write(data)
            target.buffer.flush()

    return show
