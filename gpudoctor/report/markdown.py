"""Markdown for a pull-request comment or a step summary."""

from __future__ import annotations

import re
from typing import TextIO

from gpudoctor.model import Finding, Report
from gpudoctor.report.plain import one_line
from gpudoctor.units import duration, share, size

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~!()@])")


def render(report: Report, stream: TextIO) -> None:
    """Write the verdict, a table of findings and each cure; strangers' names are escaped."""
    head = {"clean": "no findings", "inconclusive": "inconclusive"}.get(report.verdict) or f"{len(report.findings)} finding{'s' if len(report.findings) != 1 else ''}"
    stream.write(f"## gpudoctor: {head}\n\n")
    if report.findings:
        stream.write("| | rule | where | cost | what |\n|---|---|---|---|---|\n")
        for f in report.findings:
            stream.write(f"| {f.severity.name} | {f.rule} {f.name} | {_where(f)} | {_cost(f)} | {escape(f.message)} |\n")
        stream.write("\n")
        for name, fix in {f.name: f.fix for f in report.findings}.items():
            stream.write(f"- **{name}**: {escape(fix)}\n")
        stream.write("\n")
    if steps := report.summary.get("steps"):
        stream.write("| rank | steps | median step | waits for data |\n|---|---|---|---|\n")
        for r in steps:
            median = r.get("median_ns")
            stream.write(f"| {r['rank']} | {r['steps']} | {duration(median) if median else ''} | {share((r.get('data_ns') or 0) / median) if median else ''} |\n")
        stream.write("\n")
    if memory := report.summary.get("memory"):
        stream.write("| rank | where | peak allocated |\n|---|---|---|\n")
        for r in memory:
            stream.write(f"| {r['rank']} | {'host' if r['device'] == -1 else 'GPU ' + str(r['device'])} | {size(r['peak_allocated'] or 0)} |\n")
        stream.write("\n")
    if report.abstained:
        names = ", ".join(sorted({a.name for a in report.abstained}))
        stream.write(f"Could not be judged: {escape(names)}.\n")


def escape(text: object) -> str:
    """Text as Markdown shows it, on one line; no markup, no mention, no HTML gets through."""
    return _SPECIAL.sub(r"\\\1", one_line(text, 1000)).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\@", "&#64;")


def _where(f: Finding) -> str:
    if f.location:
        return escape(f"{f.location.path}:{f.location.line}")
    return escape(("rank " + ", ".join(map(str, f.ranks[:6]))) if f.ranks else "")


def _cost(f: Finding) -> str:
    return f"{duration(f.cost_ns)} per {f.values.get('cost_per', 'capture')}" if f.cost_ns else ""
