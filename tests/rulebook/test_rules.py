"""Every shipped rule loads, is worded, and holds its cases; a malformed rule is refused with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpudoctor.cli.rules import command
from gpudoctor.errors import RuleError
from gpudoctor.rulebook.cases import run_case
from gpudoctor.rulebook.load import load_rule, load_rules
from gpudoctor.rulebook.rule import Case, Rule
from gpudoctor.rulebook.scaffold import new_rule

BOOK = load_rules()


@pytest.mark.parametrize(("rule", "case"), [pytest.param(r, c, id=f"{r.id}-{c.name}") for r in BOOK for c in r.cases])
def test_case(rule: Rule, case: Case) -> None:
    assert run_case(rule, case) == ""


@pytest.mark.parametrize("rule", list(BOOK), ids=lambda r: r.id)
def test_every_detector_is_fired_by_a_case_of_its_kind(rule: Rule) -> None:
    fired = {c.kind for c in rule.cases if c.fires or c.abstains}
    assert {d.kind for d in rule.detectors} <= fired


def test_no_detector_file_is_left_without_a_rule() -> None:
    used = {d.file for r in BOOK for d in r.detectors}
    folder = next(iter(BOOK)).path.parent
    assert {p for p in folder.iterdir() if p.suffix in (".sql", ".py")} - used == set()


def written(tmp_path: Path) -> Path:
    return new_rule(tmp_path, "GD950", "my-rule")[0]


def test_a_new_rule_passes_its_cases(tmp_path: Path) -> None:
    written(tmp_path)
    done = CliRunner().invoke(command, ["test", "my-rule", "--rules", str(tmp_path)])
    assert done.output == "2 cases passed, 0 failed\n"


def test_a_new_rule_never_overwrites(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(RuleError, match="is there already"):
        new_rule(tmp_path, "GD950", "my-rule")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('severity = "warning"', 'severity = "grave"', "grave"),
        ('summary = "A copy', 'sumary = "A copy', "lacks summary"),
        ("fires = false", "fires = true", "one that stays quiet"),
        ('file = "sql"', 'file = "other.sql"', "is not there"),
        ("rank device stream kind   copy_kind bytes   start end", "rank device stream kind   copy_kind bites   start end", "bites"),
        ('slug = "my-rule"', 'slug = "your-rule"', "must be named"),
    ],
)
def test_a_malformed_rule_is_refused(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    with pytest.raises(RuleError, match=told):
        load_rule(path)


def test_a_case_that_does_not_hold_fails(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.with_suffix(".sql").write_text("SELECT rank FROM gpu_op WHERE bytes > 1000000000", "utf-8")
    assert run_case(load_rule(path), load_rule(path).cases[0]) == "stayed quiet"


def test_a_rule_that_fails_abstains_and_spares_the_others(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.with_suffix(".sql").write_text("SELECT rank FROM gpu_op WHERE CAST('x' AS INT) = rank", "utf-8")
    assert "a rule's SQL failed" in run_case(load_rule(path), load_rule(path).cases[0])


def test_an_answer_that_hangs_on_the_order_of_rows_fails(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = path.read_text("utf-8").replace("0    0      7      memcpy h2d       8388608 0     1000\n", "0    0      7      memcpy h2d       8388608 0     1000\n1    0      7      memcpy h2d       8388608 0     1000\n")
    path.write_text(text.replace("fires = true", "fires = true\ncount = 5"), "utf-8")
    path.with_suffix(".sql").write_text("SELECT first(rank) AS rank, max(bytes) AS bytes, first(rank) + 1 AS count FROM gpu_op WHERE bytes >= $min_bytes HAVING count(*) > 0", "utf-8")
    assert run_case(load_rule(path), load_rule(path).cases[0]) != ""


def test_python_rules_of_strangers_need_leave(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text("utf-8").replace('file = "sql"', 'file = "py"'), "utf-8")
    path.with_suffix(".py").write_text("def check(store, params):\n    return []\n", "utf-8")
    with pytest.raises(RuleError, match="allow-python-rules"):
        load_rules([tmp_path])


def test_two_rules_of_one_id_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    new_rule(tmp_path, "GD950", "other-rule")
    with pytest.raises(RuleError, match="GD950 is taken"):
        load_rules([tmp_path])


def test_choose_by_slug_id_and_prefix(tmp_path: Path) -> None:
    written(tmp_path)
    book = load_rules([tmp_path])
    assert [r.id for r in book.choose(["GD95"])] == ["GD950"]
    assert "GD950" not in [r.id for r in book.choose(ignore=["my-rule"])]
    with pytest.raises(RuleError, match="no rule matches GD888"):
        book.choose(["GD888"])


def test_explain_prints_the_four_headings(tmp_path: Path) -> None:
    written(tmp_path)
    text = CliRunner().invoke(command, ["explain", "GD950", "--rules", str(tmp_path)]).output
    assert [line for line in text.splitlines() if line.startswith("## ")][:4] == ["## What it does", "## Why it is bad", "## Example", "## Use instead"]


def test_a_rule_read_without_its_cases_is_the_same_rule() -> None:
    whole = {r.id: replace(r, cases=()) for r in BOOK}
    assert {r.id: r for r in load_rules(cases=False)} == whole
