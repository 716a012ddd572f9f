"""Which source lines a merge request changes."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from gpudoctor.errors import UsageError

_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@")
_SOURCES = (".py", ".cu", ".cuh")


@dataclass(frozen=True, slots=True)
class Change:
    """Lines `first` to `last` of a file as they are now."""

    path: str
    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.path}:{self.first}" + (f"–{self.last}" if self.last > self.first else "")


def git(*arguments: str, cwd: Path) -> str:
    """Run git and return what it prints; UsageError carries its first line of complaint."""
    try:
        done = subprocess.run(["git", *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    except OSError:
        raise UsageError("git is not on PATH; the gate compares with another revision through it") from None
    if done.returncode:
        complaint = (done.stderr.strip().splitlines() or ["failed"])[0]
        raise UsageError(f"git {arguments[0]}: {complaint}")
    return done.stdout


def changed_lines(base: str, root: Path) -> list[Change]:
    """Changed and added source lines between `base` and the working tree, in git's order."""
    changes: list[Change] = []
    path = ""
    for line in git("diff", "--unified=0", "--no-color", "--no-ext-diff", base, "--", cwd=root).splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/").split("\t")[0]
        elif (hunk := _HUNK.match(line)) and path.endswith(_SOURCES):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            changes.append(Change(path, max(1, first), max(1, first + max(count, 1) - 1)))
    return changes
