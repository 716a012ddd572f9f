"""The DDP communication hook on real ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")

from gpudoctor.harness.ranks import start_ranks


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
def test_hook_averages_and_proves(world: int, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    outcome = start_ranks(world, "tests.kernels.hooked", [str(out)], [tmp_path / f"{n}.txt" for n in range(world)], 120)
    assert outcome.problem == ""
    ranks = json.loads(out.read_text())
    for rank in ranks:
        assert rank["hooked"] == pytest.approx(rank["plain"], rel=1e-5, abs=1e-7)
        assert rank["hooked"] == ranks[0]["hooked"]
        assert rank["records"] >= 3
        assert rank["bins"] + rank["reduced"][4] == rank["numel"]
        assert rank["reduced"] == ranks[0]["reduced"]
    for column in (1, 2):  # sum and sketch are linear: the average's is the average of the ranks'
        assert ranks[0]["reduced"][column] == pytest.approx(sum(r["local"][column] for r in ranks) / world, abs=1e-6)
    assert ranks[0]["local"][0] != pytest.approx(ranks[1]["local"][0])
