"""A project whose merges go through the workflow that `gpudoctor init` wrote for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch, of the extra run")
pytestmark = pytest.mark.slow

DEMO = Path(__file__).parent / "demo" / "train.py"
FULL = os.environ.get("GPUDOCTOR_DEMO") == "full"
CLEAN_TIMES = 20 if FULL else 1

ITEM = ("            total += loss.detach()\n", "            total += loss.detach()\n            print(loss.item())\n")
SAMPLER = ("DataLoader(data, batch_size=16, sampler=sampler)", "DataLoader(data, batch_size=16, shuffle=True)")
COPY = ("    staging = bucket.buffer().clone()\n", "    staging = torch.stack([bucket.buffer()] * 8).double().mean(0).float()\n")
TWICE = ("    staging.div_(dist.get_world_size())\n", "    staging.div_(dist.get_world_size())\n    dist.all_reduce(staging.clone())\n")
CLEAN = ('print(f"epoch {epoch}: {total.item() / len(loader):.4f}")', 'print(f"epoch {epoch}: loss {total.item() / len(loader):.5f}")')


def sh(command: str, root: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    environment.pop("GITHUB_STEP_SUMMARY", None)
    return subprocess.run(["bash", "-c", command], cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with the demo on main, its remote, and a branch checked out for the merge request."""
    shutil.copy(DEMO, tmp_path / "train.py")
    identity = "git config user.name demo && git config user.email demo@example.invalid"
    made = sh(f"git init -q -b main . && {identity} && gpudoctor init --script train.py && git add -A && git commit -qm start && git remote add origin . && git fetch -q origin && git switch -qc change", tmp_path)
    assert made.returncode == 0, made.stderr
    repeats(tmp_path, 3)
    return tmp_path


def repeats(root: Path, times: int) -> None:
    """Set how many interleaved pairs the gate runs, as a project would."""
    config = root / "pyproject.toml"
    config.write_text(re.sub(r"(?m)^(repeats = \d+\n)?slowdown", f"repeats = {times}\nslowdown", config.read_text("utf-8")), "utf-8")


def merge_request(root: Path, old: str, new: str) -> list[subprocess.CompletedProcess[str]]:
    """Change the script, commit, and run the generated workflow's own gpudoctor commands."""
    text = (root / "train.py").read_text("utf-8")
    assert text.count(old) == 1
    (root / "train.py").write_text(text.replace(old, new), "utf-8")
    sh("git commit -qam change", root)
    workflow = (root / ".github" / "workflows" / "gpudoctor.yml").read_text("utf-8")
    commands = re.findall(r"run: (gpudoctor .*)", workflow.split("\n  gpu:")[0])
    assert len(commands) == 2
    return [sh(command, root) for command in commands]


def line_of(root: Path, text: str) -> int:
    return next(n for n, line in enumerate((root / "train.py").read_text("utf-8").splitlines(), 1) if text in line)


def told(done: list[subprocess.CompletedProcess[str]]) -> str:
    return "\n".join(f"[{d.returncode}] {d.stdout}{d.stderr}" for d in done)


def test_an_item_in_the_loop_is_stopped_at_its_line_with_its_measured_cost(project: Path) -> None:
    done = merge_request(project, *ITEM)
    assert [d.returncode for d in done] == [1, 1], told(done)
    assert f"file=train.py,line={line_of(project, 'loss.item()')}" in done[1].stdout
    assert "sync-in-hot-loop" in done[1].stdout
    assert re.search(r"with it a step takes [-+]\d", done[1].stdout), told(done)


def test_a_dropped_sampler_is_stopped(project: Path) -> None:
    done = merge_request(project, *SAMPLER)
    assert done[1].returncode == 1, told(done)
    assert "missing-distributed-sampler" in done[1].stdout
    assert f"line={line_of(project, 'shuffle=True)')}" in told(done)


def test_a_doubled_all_reduce_of_the_bucket_is_stopped_at_its_line(project: Path) -> None:
    done = merge_request(project, *TWICE)
    assert done[1].returncode == 1, told(done)
    assert f"line={line_of(project, 'all_reduce(staging.clone())')}" in done[1].stdout, told(done)


@pytest.mark.skipif(not FULL, reason="needs GPUDOCTOR_DEMO=full: ten pairs of runs, some minutes on a quiet machine")
def test_needless_copies_of_the_bucket_are_stopped_with_their_cost_and_the_changed_line(project: Path) -> None:
    repeats(project, 5)
    done = merge_request(project, *COPY)
    assert done[1].returncode == 1, told(done)
    assert f"file=train.py,line={line_of(project, 'torch.stack')}" in done[1].stdout, told(done)
    assert re.search(r"Costs [\d.]+ .s per step", done[1].stdout), told(done)


@pytest.mark.parametrize("n", range(CLEAN_TIMES))
def test_a_clean_change_passes(project: Path, n: int) -> None:
    repeats(project, 5 if FULL else 3)
    done = merge_request(project, *CLEAN)
    assert [d.returncode for d in done] == [0, 0], told(done)
