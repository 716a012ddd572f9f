"""The report for a terminal: verdict first, findings by rank, what was abstained."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.text import Text

from gpudoctor.model import Finding, Report, Severity
from gpudoctor.units import duration

_STYLE = {Severity.error: "bold red", Severity.warning: "yellow", Severity.perf: "magenta", Severity.note: "cyan"}


def render(report: Report, stream: TextIO) -> None:
    """Write the report to `stream`; colour only where the stream is a terminal."""
    console = Console(file=stream, highlight=False, soft_wrap=False)
    console.print(_verdict(report))
    for finding in report.findings:
        console.print(_block(finding))
    for a in report.abstained:
        console.print(Text(f"abstained {a.rule} {a.name}: {a.reason}; {a.needs} would tell", style="dim"))


def _verdict(report: Report) -> Text:
    if not report.findings:
        return Text("No findings." if report.verdict == "clean" else "Inconclusive: the evidence cannot answer.")
    worst = max(f.severity for f in report.findings)
    return Text(f"{len(report.findings)} findings, worst: {worst.name}", style=_STYLE[worst])


def _block(f: Finding) -> Text:
    cost = f" · {duration(f.cost_ns)} per {f.values.get('cost_per', 'capture')}" if f.cost_ns else ""
    place = f" {f.location.path}:{f.location.line}" if f.location else ""
    return Text.assemble((f"{f.severity.name} ", _STYLE[f.severity]), (f"{f.rule} {f.name}", "bold"), f"{place}{cost}\n  {f.message}\n  fix: {f.fix}\n")
