"""The reports kept beside the examples: their commands still end so, with the same findings at the same lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTS = sorted((ROOT / "examples" / "faults").glob("*.txt"))


def findings(report: str) -> list[str]:
    return re.findall(r"(?m)^(?:error|warning|perf|note) GD\d+ .*\S", report)


@pytest.mark.parametrize("kept", FAULTS, ids=lambda path: path.stem)
def test_kept_report_is_true(kept: Path, tmp_path: Path) -> None:
    report = kept.read_text("utf-8")
    command, code = re.match(r"\$ gpudoctor (.*?) +# exit (\d)\n", report).groups()  # type: ignore[union-attr]
    words = command.split()
    if words[0] == "run":
        pytest.importorskip("torch", reason="needs PyTorch to run ranks")
        words[1:1] = ["--out", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "gpudoctor", *words], cwd=ROOT, capture_output=True, text=True, timeout=120, env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"})
    assert done.returncode == int(code), done.stdout + done.stderr
    assert findings(done.stdout) == findings(report) != []

