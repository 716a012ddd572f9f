"""GitHub workflow commands: an annotation a finding, and the step summary."""

from __future__ import annotations

import os
from typing import TextIO

from gpudoctor.model import Finding, Report, Severity
from gpudoctor.report import markdown
from gpudoctor.report.plain import plain
from gpudoctor.units import duration

_COMMAND = {Severity.error: "error", Severity.warning: "warning", Severity.perf: "warning", Severity.note: "notice"}


def render(report: Report, stream: TextIO) -> None:
    """Write annotations to `stream`; where `$GITHUB_STEP_SUMMARY` names a file, append the Markdown report to it."""
    for finding in report.findings:
        stream.write(_annotation(finding) + "\n")
    stream.write(f"gpudoctor: {report.verdict}, {len(report.findings)} findings\n")
    if target := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(target, "a", encoding="utf-8") as summary:
            markdown.render(report, summary)


def _annotation(f: Finding) -> str:
    cost = f" Costs {duration(f.cost_ns)} per {f.values.get('cost_per', 'capture')}." if f.cost_ns else ""
    fields = {"title": f"{f.rule} {f.name}"}
    if f.location:
        fields = {"file": f.location.path, "line": str(f.location.line), "endLine": str(f.location.end_line or f.location.line), **fields}
    properties = ",".join(f"{k}={_property(v)}" for k, v in fields.items())
    return f"::{_COMMAND[f.severity]} {properties}::{_data(f'{f.message}{cost} Cure: {f.fix}')}"


def _data(text: str) -> str:
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
