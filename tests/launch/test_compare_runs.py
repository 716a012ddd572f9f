"""`gpudoctor compare` on real runs: one rank against two with the same global batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gpudoctor.cli import cli
from tests.launch.running import DATA, run


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("single"), ranks=1)


def trained(folder: Path, *fault: str, ranks: int = 2) -> Path:
    ran = run(folder, str(DATA / "one_or_two.py"), *fault, options=("--no-lint", "--nproc-per-node", str(ranks)))
    assert ran.stdout, ran.stderr
    return ran.out


def drift(a: Path, b: Path) -> list[dict[str, Any]]:
    done = CliRunner().invoke(cli, ["compare", str(a), str(b), "--format", "json"])
    found = json.loads(done.stdout)["findings"]
    assert done.exit_code == any(f["severity"] == "error" for f in found)
    return [f for f in found if f["name"] == "gradient-distribution-drift"]


def test_two_ranks_with_the_same_global_batch_do_not_drift(single: Path, tmp_path: Path) -> None:
    assert drift(single, trained(tmp_path)) == []


def test_a_planted_factor_of_two_is_reported(single: Path, tmp_path: Path) -> None:
    (finding,) = drift(single, trained(tmp_path, "double"))
    assert finding["values"]["parameter_count"] == finding["values"]["layers"] == 6
    assert finding["values"]["times"] == pytest.approx(2, rel=0.01)


def test_a_layer_left_out_of_ddp_is_reported_with_its_name(single: Path, tmp_path: Path) -> None:
    (finding,) = drift(single, trained(tmp_path, "apart"))
    assert set(finding["values"]["parameters"]) == {"2.weight", "2.bias"}
    assert "2.weight" in finding["message"] or "2.bias" in finding["message"]
