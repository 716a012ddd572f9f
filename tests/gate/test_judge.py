"""Noise, budgets, acceptance: the gate's judgement without running anything."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gpudoctor.errors import InputError, UsageError
from gpudoctor.gate.baseline import Baseline, load_baseline, save_baseline
from gpudoctor.gate.budget import Budget, read_budget
from gpudoctor.gate.changes import Change, changed_lines, git
from gpudoctor.gate.judge import (
    drifted,
    more_communication,
    new_findings,
    over_budget,
    slowdown_finding,
    slower,
    unmeasured,
)
from gpudoctor.gate.measures import Measures
from gpudoctor.gate.noise import divergence, ratio
from gpudoctor.gate.setup import set_up
from gpudoctor.model import Confidence, Finding, Severity


def noisy(random_: random.Random, pace: float, runs: int) -> list[Measures]:
    """Runs on a machine that drifts by a factor of up to two and is disturbed one time in five."""
    return [Measures(step_ms=pace * random_.lognormvariate(0, 0.06) * (1.4 if random_.random() < 0.2 else 1)) for _ in range(runs)]


def test_equal_sides_are_almost_never_called_slower_and_confirmation_makes_it_never() -> None:
    random_ = random.Random(1)
    budget = Budget()
    false = sum(slower(noisy(random_, 30, 5), noisy(random_, 30, 5), budget) is not None for _ in range(2000))
    assert false <= 20
    random_ = random.Random(2)
    confirmed = 0
    for _ in range(2000):
        base, head = noisy(random_, 30, 5), noisy(random_, 30, 5)
        if slower(base, head, budget) and slower(base + noisy(random_, 30, 5), head + noisy(random_, 30, 5), budget):
            confirmed += 1
    assert confirmed <= 4


def test_a_real_slowdown_is_found_and_told() -> None:
    random_ = random.Random(3)
    base = [Measures(step_ms=30 * random_.lognormvariate(0, 0.02), phases_ms={"forward": 10, "backward": 15}) for _ in range(5)]
    head = [Measures(step_ms=39 * random_.lognormvariate(0, 0.02), phases_ms={"forward": 10, "backward": 24}) for _ in range(5)]
    found = slower(base, head, Budget())
    assert found is not None
    told = slowdown_finding(base, head, found, [Change("train.py", 41, 43)])
    assert told.values["phase"] == "backward"
    assert "train.py:41–43" in told.message
    assert told.location is not None
    assert 8e6 < (told.cost_ns or 0) < 10e6


def test_ratio_needs_three_pairs_and_brackets_the_truth() -> None:
    assert ratio([1, 1], [2, 2]) is None
    found = ratio([1.0, 1.1, 0.9, 1.0], [2.0, 2.2, 1.8, 2.1])
    assert found is not None
    assert found.low < 2 < found.high


def test_divergence_is_zero_for_equal_and_one_for_disjoint() -> None:
    assert divergence({1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5}) == 0
    assert divergence({1: 1.0}, {2: 1.0}) == pytest.approx(1)


def finding(print_: str, name: str = "sync-in-hot-loop", severity: Severity = Severity.perf, confidence: Confidence = Confidence.certain) -> Finding:
    return Finding("GD107", name, severity, confidence, "m", "f", fingerprint=print_)


def test_only_new_findings_count_and_allowed_ones_do_not() -> None:
    head = [finding("old"), finding("new"), finding("fine", "dataloader-starvation")]
    found = new_findings([finding("old")], head, Budget(allow=("dataloader-starvation",)))
    assert [f.fingerprint for f in found] == ["new"]


def test_more_communication_names_the_line_where_it_grew() -> None:
    base = Measures(comm_mib=4.0, comm_sites={"train.py\treturn reduce(x)": 4.0}, comm_lines={"train.py\treturn reduce(x)": 33})
    head = Measures(
        comm_mib=8.0, comm_sites={"train.py\treduce(y)": 4.0, "train.py\treturn reduce(x)": 4.0},
        comm_lines={"train.py\treduce(y)": 33, "train.py\treturn reduce(x)": 34},
    )
    found = more_communication(base, head, Budget(), [])
    assert found is not None
    assert found.location is not None
    assert (found.location.path, found.location.line) == ("train.py", 33)
    assert more_communication(base, base, Budget(), []) is None


def test_budgets_are_broken_only_when_every_run_breaks_them() -> None:
    runs = [Measures(step_ms=s) for s in (101, 130, 99)]
    assert list(over_budget(runs, Budget(step_ms=100))) == []
    (found,) = over_budget(runs, Budget(step_ms=98))
    assert found.values["measure"] == "step_ms"
    assert unmeasured(runs, Budget(step_ms=1, peak_memory_gib=1)) == ["peak_memory_gib"]


def test_drift_names_the_layer() -> None:
    base = Measures(gradients={"a": {0: 1.0}, "b": {0: 1.0}})
    head = Measures(gradients={"a": {0: 1.0}, "b": {1: 1.0}})
    found = drifted(base, head, Budget(gradient_drift=0.2))
    assert found is not None
    assert found.values["layer"] == "b"
    assert drifted(base, base, Budget(gradient_drift=0.2)) is None


@pytest.mark.parametrize(("raw", "told"), [({"stepms": 1}, "unknown key"), ({"slowdown": -1}, "negative"), ({"repeats": 2}, "at least 3"), ({"fail-on": "x"}, "one of"), ({"args": "x"}, "list")])
def test_budget_errors(raw: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_budget(raw)


def test_baseline_comes_back_and_acceptance_of_a_difference_holds_for_its_base_only(tmp_path: Path) -> None:
    kept = Baseline("main", "m", "r", [Measures(step_ms=3.0, gradients={"a": {-3: 1.0}})], ["x"])
    slow, sync = Finding("GD701", "step-slower", Severity.error, Confidence.certain, "", "", fingerprint="s"), finding("y")
    kept.accept([slow, sync], "meant", "base1")
    save_baseline(kept, tmp_path)
    again = load_baseline("main", tmp_path)
    assert again == kept
    assert (again.accepts(slow, "base1"), again.accepts(slow, "base2"), again.accepts(sync, "base2")) == (True, False, True)
    (tmp_path / ".gpudoctor" / "baselines" / "main.json").write_text("{", "utf-8")
    with pytest.raises(InputError, match="not a baseline"):
        load_baseline("main", tmp_path)
    with pytest.raises(UsageError):
        load_baseline("../x", tmp_path)


def test_changed_lines_of_a_merge(tmp_path: Path) -> None:
    git("init", "-q", cwd=tmp_path)
    (tmp_path / "train.py").write_text("a\nb\nc\n", "utf-8")
    git("add", ".", cwd=tmp_path)
    git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x", cwd=tmp_path)
    (tmp_path / "train.py").write_text("a\nB\nc\nd\ne\n", "utf-8")
    assert changed_lines("HEAD", tmp_path) == [Change("train.py", 2, 2), Change("train.py", 4, 5)]
    with pytest.raises(UsageError, match="git"):
        changed_lines("nowhere", tmp_path)


def test_init_writes_once_and_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"', "utf-8")
    first = list(set_up(tmp_path, "train.py", "main", ("github", "gitlab")))
    texts = {w.path: w.path.read_text("utf-8") for w in first}
    again = list(set_up(tmp_path, "train.py", "main", ("github", "gitlab")))
    assert all(w.what.startswith("kept") for w in again)
    assert {w.path: w.path.read_text("utf-8") for w in first} == texts
    assert "{{" not in "".join(t for p, t in texts.items()).replace("${{", "")
    assert 'name = "x"' in texts[tmp_path / "pyproject.toml"]
