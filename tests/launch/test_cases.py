"""The field cases, each started as its user would: the fault is named from the run alone, correct code is left in peace."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.launch.running import WORSE, run

_CASES = Path(__file__).parents[2].parent / "shared" / "cases"
_ACCELERATE = ("40", "N6")

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not _CASES.is_dir(), reason="needs the shared folder cases beside the checkout")]


def _expected(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "expected.toml").read_text("utf-8"))


def _folders(visible: bool, negative: bool) -> list[Any]:
    found = []
    for path in sorted(_CASES.glob("*/expected.toml")):
        expected = _expected(path.parent)
        if expected["negative"] == negative and expected["runs_on_cpu"] and (expected["fault_visible_on_cpu"] or not visible):
            found.append(pytest.param(path.parent, id=path.parent.name))
    return found


def _needs_accelerate(folder: Path) -> None:
    if folder.name.split("_")[0] in _ACCELERATE:
        pytest.importorskip("accelerate", reason="needs accelerate: pip install accelerate")


@pytest.mark.parametrize("folder", _folders(visible=True, negative=False))
def test_fault_is_named_from_the_run_alone(folder: Path, tmp_path: Path) -> None:
    _needs_accelerate(folder)
    expected = _expected(folder)
    ran = run(tmp_path, str(folder / "train.py"), options=("--no-lint",))
    assert ran.serious == ({expected["rule"]} if expected["severity"] in WORSE else set())
    assert ran.finding(expected["rule"])["severity"] == expected["severity"]
    assert ran.code == int(expected["severity"] == "error" or expected["exit"] == "crash")


@pytest.mark.parametrize("folder", _folders(visible=True, negative=False))
def test_mended_twin_is_left_in_peace(folder: Path, tmp_path: Path) -> None:
    _needs_accelerate(folder)
    ran = run(tmp_path, str(folder / _expected(folder)["fixed"]["file"]))
    assert ran.serious == set()
    assert ran.code == 0


@pytest.mark.parametrize("folder", _folders(visible=False, negative=True))
def test_correct_code_is_left_in_peace(folder: Path, tmp_path: Path) -> None:
    _needs_accelerate(folder)
    ran = run(tmp_path, str(folder / "train.py"))
    assert ran.serious == set()
    assert ran.code == 0


@pytest.mark.parametrize("number", ["01", "02", "06", "32"])
def test_source_and_run_agree_on_one_cause(number: str, tmp_path: Path) -> None:
    (folder,) = _CASES.glob(f"{number}_*")
    ran = run(tmp_path, str(folder / "train.py"))
    assert ran.serious == {_expected(folder)["rule"]}
    assert ran.code == 1
