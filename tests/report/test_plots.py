"""What the page's charts are given: one typical step, and findings only as far as they fall into it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from gpudoctor.cli import cli
from gpudoctor.model import Confidence, Evidence, Finding, Severity
from gpudoctor.report.plots import chart_rows
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store
from tests.shared import shared_dir


def store() -> Store:
    made = Store()
    made.add_rows("step", [{"rank": 0, "step": i, "start": i * 1000, "end": (i + 1) * 1000, "warmup": i == 0, "source": "probe"} for i in range(5)])
    made.add_rows("gpu_op", [{"rank": 0, "device": 0, "stream": 7, "kind": "kernel", "start": i * 1000 + 100, "end": i * 1000 + 600, "corr": i} for i in range(2, 5)])
    made.add_rows("mem_sample", [{"rank": 0, "device": d, "step": i, "t": i * 1000, "allocated": 1 << 30} for i in range(5) for d in (-1, 0)])
    derive(made)
    return made


def finding(start: int, end: int) -> Finding:
    return Finding("GD501", "exposed-communication", Severity.perf, Confidence.certain, "m", "f", evidence=[Evidence(rank=0, start_ns=start, end_ns=end)])


def test_the_step_that_is_shown_was_captured_and_findings_are_cut_to_it() -> None:
    rows = chart_rows(store(), [finding(0, 5000), finding(2500, 2600), finding(4000, 4500)])["timeline"]
    work, *marks = rows
    assert (work["kind"], work["start_us"], work["end_us"]) == ("kernel", 0.1, 0.6)
    assert [(m["start_us"], m["end_us"]) for m in marks] == [(0.0, 1.0), (0.5, 0.6)]


def test_memory_of_the_cards_is_not_drawn_on_the_hosts_scale() -> None:
    assert {r["device"] for r in chart_rows(store())["memory"]} == {0}


def test_analyze_draws_the_charts_of_its_page(tmp_path: Path) -> None:
    capture = next(iter(sorted((shared_dir("captures") / "planted" / "kineto").rglob("*.json*"))))
    done = CliRunner().invoke(cli, ["analyze", str(capture), "--no-cache", "--fail-on", "error", "--format", "html", "-o", str(tmp_path / "r.html")])
    assert done.exit_code in (0, 1), done.output
    assert 'data-chart="timeline"' in (tmp_path / "r.html").read_text("utf-8")
