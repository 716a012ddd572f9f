"""Ranks that other launchers start, and scripts that ask to be watched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.launch.running import DATA, Ran, environment, run

pytestmark = pytest.mark.slow


def _steps(ran_or_folder: Ran | Path) -> dict[int, int]:
    """Optimizer steps by rank, as the report tells them."""
    import json

    folder = ran_or_folder.out if isinstance(ran_or_folder, Ran) else ran_or_folder
    found = {}
    for path in folder.glob("capture/probe.rank*.jsonl"):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        found[int(path.name.split("rank")[1].split(".")[0])] = sum(
            len(columns["step"]) if isinstance(columns["step"], list) else 1 for table, columns in rows if table == "step" and "step" in columns
        )
    return found


def test_mp_spawn(tmp_path: Path) -> None:
    ran = run(tmp_path, "--", sys.executable, str(DATA / "spawned.py"), str(tmp_path / "store"))
    assert ran.code == 0, ran.stderr
    assert _steps(ran) == {0: 5, 1: 5}
    assert ran.serious == set()
    assert "rank 1 is done" in (ran.out / "logs" / "rank1.txt").read_text("utf-8")


def test_mp_spawn_that_fails(tmp_path: Path) -> None:
    ran = run(tmp_path, "--", sys.executable, str(DATA / "spawned.py"), str(tmp_path / "store"), "fail")
    assert ran.code == 1
    finding = ran.finding("rank-died")
    assert finding["ranks"] == [1]
    assert "ValueError: the planted fault" in finding["message"]
    assert finding["location"]["path"].endswith("spawned.py")


def test_one_process_without_a_group(tmp_path: Path) -> None:
    ran = run(tmp_path, "--", sys.executable, str(DATA / "single.py"))
    assert ran.code == 0
    assert _steps(ran)[0] >= 7
    assert ran.serious == set()


def test_accelerate_launch(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="needs accelerate: pip install accelerate")
    accelerate = Path(sys.executable).with_name("accelerate")
    ran = run(tmp_path, "--", str(accelerate), "launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no",
              "--dynamo_backend", "no", str(Path(__file__).parents[2] / "examples" / "train_ddp.py"), ACCELERATE_USE_CPU="1")
    assert ran.code == 0, ran.stderr
    assert _steps(ran) == {0: 128, 1: 128}
    assert ran.serious == set()


def test_srun_style_variables(tmp_path: Path) -> None:
    script = DATA / "slurm_style.py"
    both = "for r in 0 1; do SLURM_PROCID=$r SLURM_NTASKS=2 $PYTHON $SCRIPT & done; wait"
    ran = run(tmp_path, "--", "sh", "-c", both, PYTHON=sys.executable, SCRIPT=str(script), STORE=str(tmp_path / "store"))
    assert ran.code == 0, ran.stderr
    assert _steps(ran) == {0: 4, 1: 4}


def test_an_existing_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os; os.environ['THEIRS'] = 'ran'", "utf-8")
    ran = run(tmp_path, "--", sys.executable, "-c", "import os; print('theirs', os.environ['THEIRS'])", PYTHONPATH=str(tmp_path / "site"))
    assert "theirs ran" in ran.stderr
    assert ran.code == 0


def test_launcher_that_fails_before_any_rank(tmp_path: Path) -> None:
    ran = run(tmp_path, "--", sys.executable, "-c", "import os; os.environ['NOT_SET']")
    assert ran.code == 1
    assert "KeyError: 'NOT_SET'" in ran.finding("rank-died")["message"]
    assert ran.finding("rank-died")["ranks"] == []


def test_watch(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch to run ranks")
    _torchrun(tmp_path, str(DATA / "watched.py"), "mine")
    assert _steps(tmp_path / "mine") == {0: 4, 1: 4}
    report = _analyze(tmp_path, "mine")
    assert not [f for f in report["findings"] if f["severity"] in ("warning", "error")]


def test_transformers_trainer(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs transformers: pip install transformers accelerate")
    _torchrun(tmp_path, str(DATA / "hf_trainer.py"), "output", "mine")
    assert _steps(tmp_path / "mine") == {0: 6, 1: 6}
    assert not [f for f in _analyze(tmp_path, "mine")["findings"] if f["severity"] in ("warning", "error")]


def test_transformers_trainer_under_run(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs transformers: pip install transformers accelerate")
    ran = run(tmp_path, str(DATA / "hf_trainer.py"), "output", "ignored")
    assert ran.code == 0, ran.stderr
    assert _steps(ran) == {0: 6, 1: 6}
    assert ran.serious == set()
    assert not (tmp_path / "ignored").exists()


def test_lightning_trainer_that_starts_its_own_ranks(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="needs lightning: pip install lightning")
    subprocess.run([sys.executable, str(DATA / "pl_trainer.py"), "mine"], cwd=tmp_path, env=environment(), timeout=120, check=True, capture_output=True)
    assert _steps(tmp_path / "mine") == {0: 6, 1: 6}
    assert not [f for f in _analyze(tmp_path, "mine")["findings"] if f["severity"] in ("warning", "error")]


def _torchrun(folder: Path, *words: str) -> None:
    """Start two ranks without the doctor."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GPUDOCTOR")} | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *words], cwd=folder, env=env, timeout=120, check=True, capture_output=True)


def _analyze(folder: Path, run_folder: str) -> dict[str, Any]:
    import json

    done = subprocess.run([sys.executable, "-m", "gpudoctor", "analyze", "--format", "json", run_folder], cwd=folder, capture_output=True, text=True, timeout=60)
    report: dict[str, Any] = json.loads(done.stdout)
    return report
