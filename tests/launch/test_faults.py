"""Runs that end badly end soon, with a report that names what happened and the right exit code."""

from __future__ import annotations

import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.launch.running import DATA, command, environment, result, run

pytestmark = pytest.mark.slow
FAULTY = str(DATA / "faulty.py")


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        ("raise", 1, "ValueError: the planted fault"),
        ("exit", 7, "exit code 7"),
        ("sigkill", 137, "SIGKILL"),
        ("abort", 134, "SIGABRT"),
    ],
)
def test_first_dead_rank_is_named(fault: str, code: int, words: str, tmp_path: Path) -> None:
    ran = run(tmp_path, FAULTY, fault, options=("--no-lint",))
    assert ran.code == code
    assert ran.serious == {"rank-died"}
    finding = ran.finding("rank-died")
    assert finding["ranks"] == [1]
    assert words in finding["message"]
    ended = {row["rank"]: row for row in ran.rows("rank_info")}
    assert ended[0]["victim"]
    assert not ended[1]["victim"]


@pytest.mark.parametrize(("fault", "rule"), [("sleep", "hang"), ("ignore_term", "hang"), ("mismatch", "collective-mismatch")])
def test_stalled_run_is_ended_and_explained(fault: str, rule: str, tmp_path: Path) -> None:
    started = time.monotonic()
    ran = run(tmp_path, FAULTY, fault, options=("--no-lint", "--hang-timeout", "8"))
    assert ran.code == 1
    assert ran.serious == {rule}
    assert time.monotonic() - started < 90
    if fault in ("sleep", "ignore_term"):
        assert ran.finding("hang")["ranks"] == [1]
        assert "misbehave" in ran.finding("hang")["message"]
        stack = [(f["rank"], f["func"]) for f in ran.rows("stack_frame") if f["thread"] == 0]
        assert (1, "misbehave") in stack
        assert (0, "main") in stack


@pytest.mark.parametrize("fault", ["none", "sleep"])
def test_interrupt(fault: str, tmp_path: Path) -> None:
    """Ctrl-C while ranks train, and while they are stuck: the run ends within seconds and is reported."""
    script = tmp_path / "endless.py"
    script.write_text(Path(FAULTY).read_text("utf-8").replace("range(6)", "range(10_000_000)"), "utf-8")
    process = subprocess.Popen(command(tmp_path, str(script), fault, options=("--no-lint",)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
    records = tmp_path / "run" / "capture" / "probe.rank1.jsonl"
    until = time.monotonic() + 60
    while time.monotonic() < until and not (records.exists() and '"step"' in records.read_text("utf-8")):
        time.sleep(0.2)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    stdout, stderr = process.communicate(timeout=60)
    ran = result(process.returncode, stdout, stderr, tmp_path)
    assert time.monotonic() - sent < 40
    assert ran.code == 130
    assert ran.serious == set()
    assert {"kind": "interrupted", "value": 2.0} in ran.rows("fact")
    assert any(f["rank"] == 1 for f in ran.rows("stack_frame"))


def test_full_disk_does_not_break_the_training(tmp_path: Path) -> None:
    """No file may grow beyond 48 KiB: the ranks' records stop, the training goes on, the report comes."""
    example = Path(__file__).parents[2] / "examples" / "train_ddp.py"
    done = subprocess.run(
        command(tmp_path, str(example), options=("--no-lint", "--no-tensorboard")), capture_output=True, text=True, timeout=120, env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (48 << 10, 48 << 10)),
    )
    ran = result(done.returncode, done.stdout, done.stderr, tmp_path)
    assert ran.code == 0, ran.stderr
    assert "epoch 3" in ran.stderr
    assert "recording stopped" in ran.stderr
    assert ran.serious == set()


def test_restart_is_passed_to_torchrun(tmp_path: Path) -> None:
    """The first attempt dies before the process group: torch 2.13's torchrun cannot restart gloo ranks that had met."""
    script = tmp_path / "flaky.py"
    text = Path(FAULTY).read_text("utf-8").replace("FAULT = sys.argv[1]", "FAULT = 'none'")
    first = "def main() -> None:\n    if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n        raise ValueError('the first attempt')\n"
    script.write_text(text.replace("def main() -> None:\n", first), "utf-8")
    ran = run(tmp_path, str(script), options=("--no-lint", "--max-restarts", "1"))
    assert ran.code == 0
    assert [row["attempt"] for row in ran.rows("rank_info")] == [1, 1]
    assert ran.serious == set()
