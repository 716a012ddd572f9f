"""Start `gpudoctor run` as a user would, and read what comes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parents[1] / "data" / "launch"
WORSE = ("warning", "error")


@dataclass
class Ran:
    code: int
    report: dict[str, Any]
    stdout: str
    stderr: str
    out: Path

    @property
    def serious(self) -> set[str]:
        """Slugs of findings at warning or above; what they say is printed for whom an assertion fails on."""
        found = [f for f in self.report["findings"] if f["severity"] in WORSE]
        for finding in found:
            print(finding["name"], finding["message"], *(p.read_text("utf-8", "replace")[-2000:] for p in sorted((self.out / "logs").glob("*"))), sep="\n")
        return {f["name"] for f in found}

    def finding(self, name: str) -> dict[str, Any]:
        return next(f for f in self.report["findings"] if f["name"] == name)

    def rows(self, table: str, file: str = "launch.jsonl") -> list[dict[str, Any]]:
        """Rows that the launcher wrote into a table."""
        lines = (self.out / "capture" / file).read_text("utf-8").splitlines()
        return [columns for name, columns in map(json.loads, lines) if name == table]


def command(tmp_path: Path, *words: str, options: tuple[str, ...] = ()) -> list[str]:
    return [sys.executable, "-m", "gpudoctor", "run", "--format", "json", "--out", str(tmp_path / "run"), *options, *words]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", **more}


def run(tmp_path: Path, *words: str, options: tuple[str, ...] = (), timeout: float = 120, **more: str) -> Ran:
    """Run to the end, which must come within `timeout` seconds."""
    pytest.importorskip("torch", reason="needs PyTorch to run ranks")
    done = subprocess.run(command(tmp_path, *words, options=options), capture_output=True, text=True, timeout=timeout, env=environment(**more), cwd=tmp_path)
    return result(done.returncode, done.stdout, done.stderr, tmp_path)


def result(code: int, stdout: str, stderr: str, tmp_path: Path) -> Ran:
    assert "gpudoctor: probes are off" not in stderr, stderr
    report = json.loads(stdout) if stdout.startswith("{") else {}
    return Ran(code, report, stdout, stderr, tmp_path / "run")
