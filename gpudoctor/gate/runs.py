"""Run the script of two revisions in turn, base, head, base, head …, so that the machine's drift hits both alike."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.errors import InconclusiveError
from gpudoctor.gate.budget import Budget
from gpudoctor.gate.changes import git
from gpudoctor.gate.measures import Measures, measure
from gpudoctor.model import Finding
from gpudoctor.rundir import RunDir

Progress = Callable[[str], None]


@dataclass(slots=True)
class Side:
    """One revision: where its tree lies, and what its runs gave."""

    name: str
    root: Path
    runs: list[Measures] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    failure: str = ""

    def run(self, budget: Budget, out: Path) -> None:
        """Run once more and keep the measures; a script that fails is noted in `failure`."""
        ranks = ["--nproc-per-node", str(budget.ranks)] if budget.ranks else []
        command = [sys.executable, "-m", "gpudoctor", "run", "--out", str(out), "--no-tensorboard", "--fail-on", "error", "--format", "json", *ranks, str(budget.script), *budget.args]
        done = subprocess.run(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
        if not RunDir(out).findings.is_file():
            raise InconclusiveError(f"{self.name}: {_last_line(done.stderr) or 'the run left no report'}")
        try:
            measured, findings = measure(out, self.root)
        except InconclusiveError as error:
            self.failure = self.failure or f"{error} ({_last_line(done.stderr)})"
            return
        self.runs.append(measured)
        known = {f.fingerprint for f in self.findings}
        self.findings += [f for f in findings if f.fingerprint not in known]


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


@contextlib.contextmanager
def worktree(revision: str, root: Path) -> Iterator[Path]:
    """Check `revision` out beside the user's tree, which is not touched, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="gpudoctor-gate-") as folder:
        tree = Path(folder) / "base"
        git("worktree", "add", "--detach", "--quiet", str(tree), revision, cwd=root)
        try:
            yield tree
        finally:
            git("worktree", "remove", "--force", str(tree), cwd=root)


def interleave(base: Side | None, head: Side, budget: Budget, times: int, out: Path, tell: Progress) -> None:
    """Run each side `times` times in turn; stops early when a side cannot run."""
    for n in range(times):
        for side in (base, head) if base else (head,):
            tell(f"{side.name}: run {n + 1} of {times}")
            side.run(budget, out / f"{side.name}-{len(side.runs)}-{n}")
            if side.failure:
                return
