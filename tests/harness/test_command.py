"""`gpudoctor harness` as a user starts it, on CPU ranks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpudoctor.cli import cli
from gpudoctor.harness.run import EXPERIMENTS, read_results, result_path, run_experiments
from gpudoctor.rundir import RunDir


def gpudoctor(*arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gpudoctor", *arguments], capture_output=True, text=True, timeout=timeout)


def test_help_names_every_experiment_without_torch() -> None:
    done = gpudoctor("harness", "--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in (*EXPERIMENTS, "all"))
    loaded = subprocess.run([sys.executable, "-c", "import sys, gpudoctor.cli.harness; print('torch' in sys.modules)"], capture_output=True, text=True)
    assert loaded.stdout.strip() == "False"


@pytest.mark.parametrize(("arguments", "says"), [(("nonsense",), "nonsense"), ((), "Missing argument"), (("drift", "--ranks", "0"), "--ranks"), (("drift", "--steps", "2"), "--steps")])
def test_bad_usage(arguments: tuple[str, ...], says: str) -> None:
    done = gpudoctor("harness", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_one_rank_that_cannot_says_why(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")
    done = gpudoctor("harness", "launch", "--cpu", "--ranks", "1", "--out", str(tmp_path), "--format", "json")
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["results"]
    assert result["state"] == "cannot"
    assert "CUDA GPU" in result["verdict"]


def test_a_run_shows_what_the_machine_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")
    monkeypatch.setattr("gpudoctor.harness.run.EXPERIMENTS", {"amp": EXPERIMENTS["amp"]})
    script, out = tmp_path / "train.py", tmp_path / "run"
    script.write_text("print('trained')\n")
    done = CliRunner().invoke(cli, ["run", "--with-harness", "--format", "json", "--out", str(out), str(script)])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    (result,) = report["summary"]["harness"]
    assert (result["experiment"], result["state"], len(result["rows"])) == ("amp", "ok", 20)
    assert report["subject"]["paths"] == [str(script)]
    again = CliRunner().invoke(cli, ["report", str(out)])
    assert result["verdict"] in again.stdout
    assert "1 experiment: 1 ok" in " ".join(again.stdout.split())
    page = CliRunner().invoke(cli, ["report", str(out), "--format", "html"])
    assert 'data-chart="harness-amp"' in page.stdout


def test_a_run_keeps_its_report_when_the_experiments_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")
    monkeypatch.setattr("gpudoctor.harness.run.find_spec", lambda name: None)
    script, out = tmp_path / "train.py", tmp_path / "run"
    script.write_text("print('trained')\n")
    done = CliRunner().invoke(cli, ["run", "--with-harness", "--format", "json", "--out", str(out), str(script)])
    assert done.exit_code == 0, done.output
    assert "no experiments: the harness needs PyTorch" in done.stderr
    assert (out / "findings.json").is_file()


@pytest.mark.slow
def test_all_on_two_cpu_ranks(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")
    begin = time.monotonic()
    done = gpudoctor("harness", "all", "--cpu", "--ranks", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - begin < 300
    results = {result.experiment: result for result in read_results(RunDir(tmp_path))}
    assert list(results) == list(EXPERIMENTS)
    assert {name for name, r in results.items() if r.state == "cannot"} == {"launch", "preallocate"}
    drift = {row[0]: row for row in results["drift"].rows}
    for strategy in ("model", "pipeline", "ddp"):
        assert drift[strategy][2] < 1e-5
    assert [row[3] for row in results["recovery"].rows] == ["yes"] * 20
    assert all(name in done.stdout for name in EXPERIMENTS)
    assert json.loads((tmp_path / "run.json").read_text())["harness"]["drift"]["state"] == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "counts"), [(3, [1, 2, 3]), (4, [1, 2, 4])])
def test_more_ranks(ranks: int, counts: list[int], tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")
    run = RunDir.create(tmp_path)
    (drift, scale) = run_experiments(["drift", "scale"], run, ranks=ranks, steps=6, cpu=True)
    assert drift.state == "ok", drift.verdict
    assert {row[0]: row[4] for row in drift.rows if row[4] == "yes"} == {"ddp": "yes", "model": "yes", "pipeline": "yes"}
    assert [row[0] for row in scale.rows] == counts
    assert "cannot be concluded here" in scale.verdict
    assert result_path(run, "scale").is_file()


def test_a_failing_experiment_is_told_and_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")
    monkeypatch.setattr("gpudoctor.harness.run.EXPERIMENTS", {"broken": "Broken.", "launch": "Launch."})
    broken, launch = run_experiments(["all"], RunDir.create(tmp_path), ranks=1, cpu=True)
    assert broken.state == "failed"
    assert "No module named 'gpudoctor.harness.experiments.broken'" in broken.verdict
    assert launch.state == "cannot"
