"""Evidence becomes findings: one cause one finding, costs per step, silenced ones apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.model import Confidence, Evidence, Finding, Location, Report, Severity, Subject
from gpudoctor.report.places import mark, shorten
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import load_rule
from gpudoctor.rulebook.rule import Rule
from gpudoctor.rulebook.scaffold import new_rule
from gpudoctor.rulebook.suppress import split_suppressed


@pytest.fixture
def rule(tmp_path: Path) -> Rule:
    return load_rule(new_rule(tmp_path, "GD950", "my-rule")[0])


def test_a_line_seen_in_source_and_in_a_capture_is_one_finding_with_the_measured_cost(rule: Rule) -> None:
    source = Evidence(location=Location("train.py", 41), values={"bytes": 4})
    measured = [Evidence(rank=r, cost_ns=2000, count=3) for r in (0, 1)]
    (found,) = findings_from([(rule, e) for e in (source, *measured)], {0: 10, 1: 10})
    assert (found.location, found.ranks, found.count, found.cost_ns) == (Location("train.py", 41), [0, 1], 6, 200)
    assert found.values["cost_per"] == "step"


def test_cost_is_that_of_the_worst_rank_and_of_the_capture_without_steps(rule: Rule) -> None:
    items = [Evidence(rank=0, cost_ns=100), Evidence(rank=1, cost_ns=900)]
    (found,) = findings_from([(rule, e) for e in items])
    assert (found.cost_ns, found.values["cost_per"]) == (900, "capture")


def test_evidence_without_a_line_stays_apart_when_two_lines_could_own_it(rule: Rule) -> None:
    items = [Evidence(location=Location("train.py", n)) for n in (1, 2)] + [Evidence(rank=0)]
    assert len(findings_from([(rule, e) for e in items])) == 3


def test_worst_first(rule: Rule) -> None:
    items = [Evidence(group="a", severity=Severity.perf, cost_ns=9), Evidence(group="b", severity=Severity.error), Evidence(group="c", severity=Severity.perf, cost_ns=99)]
    found = findings_from([(rule, e) for e in items])
    assert [f.severity.name for f in found] == ["error", "perf", "perf"]
    assert [f.cost_ns for f in found] == [None, 99, 9]


def finding(line: int, path: str = "train.py") -> Finding:
    return Finding("GD950", "my-rule", Severity.error, Confidence.certain, "m", "f", Location(path, line))


LINES = ["a()  # gpudoctor: ignore[my-rule] known", "b()", "# gpudoctor: ignore", "c()", "d()  # gpudoctor: ignore[other]", "e()"]


def test_suppression_on_the_line_and_alone_above_it() -> None:
    kept, silenced = split_suppressed([finding(n) for n in (1, 2, 4, 5, 6)], read=lambda _: LINES)
    assert [f.location.line for f in silenced if f.location] == [1, 4]
    assert len(kept) == 3


def test_suppression_per_file() -> None:
    kept, silenced = split_suppressed([finding(2), finding(2, "old/train.py")], {"old/*": ("GD9",)}, read=lambda _: LINES)
    assert [f.location.path for f in silenced if f.location] == ["old/train.py"]
    assert len(kept) == 1


def test_fingerprints_survive_moved_lines_and_tell_equal_lines_apart(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("x.item()\nx.item()\n", "utf-8")
    before = [finding(1, str(file)), finding(2, str(file))]
    mark(before)
    moved = tmp_path / "b"
    moved.mkdir()
    assert before[0].fingerprint != before[1].fingerprint
    lines = ["", "", "  x.item()", "y = 1", "x.item()"]
    after = [finding(3, str(file)), finding(5, str(file))]
    from gpudoctor.report import places

    places._lines.cache_clear()
    file.write_text("\n".join(lines), "utf-8")
    mark(after)
    assert [f.fingerprint for f in after] == [f.fingerprint for f in before]


def test_paths_below_the_working_folder_are_told_relative(tmp_path: Path) -> None:
    items = [Evidence(location=Location(str(tmp_path / "a" / "train.py"), 1)), Evidence(location=Location("/elsewhere/x.py", 1)), Evidence(location=Location("./a/train.py", 1))]
    shorten(items, tmp_path)
    assert [e.location.path for e in items if e.location] == ["a/train.py", "/elsewhere/x.py", "a/train.py"]


def test_exit_codes() -> None:
    report = Report(Subject("source"), [finding(1)])
    assert report.exit_code(Severity.error) == 1
    report.findings[0].confidence = Confidence.possible
    assert report.exit_code(Severity.note) == 0


def test_the_line_where_a_fault_struck_joins_the_line_to_change_when_they_are_close(rule: Rule) -> None:
    near = [Evidence(location=Location("train.py", 31)), Evidence(rank=0, location=Location("train.py", 34)), Evidence(rank=1, location=Location("train.py", 34))]
    (found,) = findings_from([(rule, e) for e in near])
    assert (found.location, found.ranks) == (Location("train.py", 31), [0, 1])
    far = [Evidence(location=Location("train.py", 31)), Evidence(rank=0, location=Location("train.py", 60))]
    assert len(findings_from([(rule, e) for e in far])) == 2


def test_source_and_rank_name_the_same_line_in_groups_of_their_own(rule: Rule) -> None:
    place = Location("train.py", 34)
    seen = [Evidence(location=place, group="batch"), Evidence(rank=0, location=place, count=30), Evidence(location=Location("train.py", 36), group="labels")]
    first, second = findings_from([(rule, e) for e in seen])
    assert (first.location, first.ranks, first.count) == (place, [0], 30)
    assert (second.location, second.ranks) == (Location("train.py", 36), [])
