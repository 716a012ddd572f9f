"""Results as files, and what a damaged one gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.errors import InputError
from gpudoctor.harness.result import Column, Plot, Result, Series, cannot


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "harness.drift.json"
    before = Result("drift", "Drift", "fine", "ok", [Column("loss"), Column("time", "s")], [[1.5, 0.25], ["", None]], [Plot("Loss", "step", "loss", [Series("single", [0.0], [1.5])], "y")], ["on a CPU"], {"ranks": 2}, 1.5)
    before.write(path)
    assert Result.read(path) == before
    assert before.plots[0].rows() == [{"x": 0.0, "y": 1.5, "series": "single", "title": "Loss", "x_title": "step", "y_title": "loss", "x_log": False, "y_log": True}]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "gpudoctor.harness/0"}', '{"schema": "gpudoctor.harness/1", "columns": [1], "plots": []}'])
def test_damaged(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(InputError, match="not a harness result"):
        Result.read(path)


def test_cannot_says_why() -> None:
    result = cannot("launch", "Launch", "a CUDA GPU is needed")
    assert (result.state, result.verdict) == ("cannot", "cannot run here: a CUDA GPU is needed")
