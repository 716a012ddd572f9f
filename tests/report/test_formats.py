"""Every format holds its schema, its golden file, and strangers' names at bay."""

from __future__ import annotations

import io
import json
import os
import xml.etree.ElementTree as ET
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from gpudoctor.model import Report, Subject
from gpudoctor.report import as_json, junit, sarif, terminal
from gpudoctor.report.formats import render
from tests.report.samples import HOSTILE, sample

GOLDEN = Path(__file__).parent / "golden"


def text(report: Report, name: str) -> str:
    stream = io.StringIO()
    render(report, name, stream)
    return stream.getvalue()


@pytest.mark.parametrize("name", ["terminal", "json", "sarif", "junit", "github", "markdown"])
def test_golden(name: str, update: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    got = text(sample(), name)
    file = GOLDEN / f"{name}.txt"
    if update:
        file.parent.mkdir(exist_ok=True)
        file.write_text(got, "utf-8")
    assert got == file.read_text("utf-8"), "run with --update if the change is meant"


def schema() -> dict[str, object]:
    return json.loads((resources.files("gpudoctor.report") / "report.schema.json").read_text("utf-8"))


@pytest.mark.parametrize("report", [sample(), Report(Subject("source"))], ids=["full", "empty"])
def test_json_holds_its_schema(report: Report) -> None:
    jsonschema.validate(json.loads(text(report, "json")), schema())


def test_json_comes_back_the_same() -> None:
    document = text(sample(), "json")
    assert text(as_json.load(document, "here"), "json") == document


def test_sarif_holds_the_official_schema() -> None:
    file = os.environ.get("GPUDOCTOR_SARIF_SCHEMA")
    if not file:
        pytest.skip("needs GPUDOCTOR_SARIF_SCHEMA, the SARIF 2.1.0 JSON schema (.ci/run fetches it)")
    official = json.loads(Path(file).read_text("utf-8"))
    for report in (sample(), Report(Subject("source"))):
        jsonschema.Draft7Validator(official).validate(sarif.log(report))


def test_sarif_results_carry_what_code_scanning_needs() -> None:
    run = sarif.log(sample())["runs"][0]
    assert [r["level"] for r in run["results"]] == ["error", "warning"]
    assert all(r["partialFingerprints"]["gpudoctor/v1"] for r in run["results"])
    assert run["results"][0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 38, "startColumn": 16, "endLine": 38}


@pytest.mark.parametrize(("path", "uri"), [("a b.py", "a%20b.py"), ("/x/y.py", "file:///x/y.py"), ("C:\\x\\y.py", "file:///C%3A/x/y.py")])
def test_sarif_uris(path: str, uri: str) -> None:
    assert sarif.artifact(path)["uri"] == uri


def test_junit_parses_and_counts() -> None:
    stream = io.StringIO()
    junit.render(sample(), stream)
    suite = ET.fromstring(stream.getvalue().split("\n", 1)[1])[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")


@pytest.mark.parametrize("name", ["terminal", "json", "sarif", "junit", "github", "markdown"])
def test_no_control_character_gets_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    printed = text(sample(), name)
    assert "\x1b" not in printed
    if name == "json":
        return
    assert "\u202e" not in printed


def test_github_lines_cannot_be_forged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    report = sample()
    report.findings[1].message = "one\n::error::forged"
    lines = text(report, "github").splitlines()
    assert [line.split(" ")[0] for line in lines if line.startswith("::")] == ["::error", "::warning"]
    assert "GD301" in (tmp_path / "summary.md").read_text("utf-8")


def test_markdown_shows_hostile_names_as_text() -> None:
    assert "<script>" not in text(sample(), "markdown")
    assert "](javascript" not in text(sample(), "markdown")
    assert HOSTILE not in text(sample(), "markdown")


@pytest.mark.parametrize("width", [80, 200])
def test_terminal_keeps_its_width(width: int) -> None:
    stream = io.StringIO()
    terminal.render(sample(), stream, width)
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "1 error, 1 perf" in lines[1]
    assert "…" not in next(line for line in lines if "data wait" in line)


def test_terminal_on_a_stream_that_knows_only_ascii() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", errors="strict")
    report = sample()
    report.findings[1].message = "plain"
    terminal.render(report, stream, 80)
    stream.flush()
    assert b"ddp-forward-bypassed" in raw.getvalue()
