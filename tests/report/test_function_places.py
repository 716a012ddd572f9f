"""Kineto's frames point at the function they mean, in the file they mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.model import Evidence, Location
from gpudoctor.report.function_places import widen
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import load_rules

SCRIPT = """import torch


def evaluate(model):
    return model(1).item()


@torch.no_grad()
def train(model):
    for step in range(9):
        loss = model(step)
        total = loss + 1
        other = total + 2
        again = other + 3
        print(loss.item())


train(print)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(SCRIPT, "utf-8")
    return str(tmp_path / "train.py")


def seen(line: int, func: str, path: str = "train.py") -> Evidence:
    return Evidence(rank=0, location=Location(path, line), cost_ns=700, traced=True, values={"func": func})


@pytest.mark.parametrize(("line", "func", "end"), [(8, "train", 15), (10, "train", 15), (4, "evaluate", 5), (18, "<module>", 18), (4, "absent", None), (30, "train", None)])
def test_a_frame_is_its_function(script: str, line: int, func: str, end: int | None) -> None:
    item = seen(line, func)
    widen([item], [script])
    assert item.location == Location(script, line, end)


def test_two_files_of_that_name_are_not_told_apart(script: str) -> None:
    item = seen(8, "train")
    widen([item], [script, "/elsewhere/train.py"])
    assert item.location == Location("train.py", 8, None)


def test_what_the_ranks_and_the_source_say_of_lines_stays(script: str) -> None:
    item = Evidence(rank=0, location=Location("train.py", 8), values={"func": "train"})
    widen([item], [script])
    assert item.location == Location("train.py", 8)


def test_the_measured_cost_of_a_function_joins_the_line_in_it_that_the_source_names(script: str) -> None:
    rule = next(r for r in load_rules() if r.slug == "sync-in-hot-loop")
    source, measured = Evidence(location=Location(script, 15)), seen(8, "train")
    widen([source, measured], [script])
    (found,) = findings_from([(rule, source), (rule, measured)], {0: 7}, {0: 7})
    assert (found.location, found.ranks, found.cost_ns) == (Location(script, 15), [0], 100)


def test_a_finding_in_another_function_stays_apart(script: str) -> None:
    rule = next(r for r in load_rules() if r.slug == "sync-in-hot-loop")
    items = [Evidence(location=Location(script, 15)), seen(4, "evaluate")]
    widen(items, [script])
    assert len(findings_from([(rule, e) for e in items])) == 2


def test_an_exact_line_does_not_join_another_line_of_its_function(script: str) -> None:
    """nsys tells both lines of a function: each cost stays with its own."""
    rule = next(r for r in load_rules() if r.slug == "sync-in-hot-loop")
    exact = seen(9, "train")
    exact.location = Location("train.py", 9, 9)
    items = [Evidence(location=Location(script, 15)), exact]
    widen(items, [script])
    assert sorted(f.location.line for f in findings_from([(rule, e) for e in items]) if f.location) == [9, 15]


def test_a_file_of_the_recording_machine_is_found_here(script: str, tmp_path: Path) -> None:
    other = tmp_path / "other" / "train.py"
    other.parent.mkdir()
    other.write_text("def evaluate(model):\n    pass\n", "utf-8")
    item = seen(15, "train", "/rig/only/train.py")
    widen([item], [script, str(other)])
    assert item.location == Location(script, 15, 15)
    silent = Evidence(rank=0, location=Location("/rig/only/train.py", 3), traced=True)
    widen([silent, seen(15, "train", "/rig/only/train.py")], [script, str(other)])
    assert silent.location == Location(script, 3), "a rule that tells no function"
    for absent in (seen(15, "elsewhere", "/rig/only/train.py"), seen(15, "train", "/rig/only/tool.py")):
        place = absent.location
        widen([absent], [script, str(other)])
        assert absent.location == place
    here = seen(4, "evaluate", str(other))
    widen([here], [script])
    assert here.location is not None
    assert here.location.path == str(other), "a file that is there is itself"
