"""JUnit XML: one test case a finding; errors fail, the rest is told in system-out."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import TextIO

from gpudoctor.model import Finding, Report, Severity
from gpudoctor.report.plain import one_line, plain
from gpudoctor.units import duration


def render(report: Report, stream: TextIO) -> None:
    """Write one `<testsuites>` document; findings of warning or above are failures, abstentions are skipped cases."""
    failing = [f for f in report.findings if f.severity >= Severity.warning]
    total = max(1, len(report.findings) + len(report.abstained))
    root = ET.Element("testsuites", name="gpudoctor", tests=str(total), failures=str(len(failing)))
    suite = ET.SubElement(root, "testsuite", name=one_line(", ".join(report.subject.paths) or report.subject.kind), tests=str(total),
                          failures=str(len(failing)), errors="0", skipped=str(len(report.abstained)))
    for f in report.findings:
        case = ET.SubElement(suite, "testcase", name=_name(f), classname=f"gpudoctor.{f.rule}.{f.name}", time="0")
        if f.location:
            case.set("file", one_line(f.location.path))
            case.set("line", str(f.location.line))
        detail = ET.SubElement(case, "failure", message=one_line(f.message), type=f.severity.name) if f in failing else ET.SubElement(case, "system-out")
        detail.text = plain(_text(f))
    for a in report.abstained:
        case = ET.SubElement(suite, "testcase", name=a.name, classname=f"gpudoctor.{a.rule}.{a.name}", time="0")
        ET.SubElement(case, "skipped", message=one_line(f"{a.reason}; {a.needs} would tell"))
    if not report.findings and not report.abstained:
        ET.SubElement(suite, "testcase", name="no findings", classname="gpudoctor", time="0")
    ET.indent(root)
    stream.write('<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n")


def _name(f: Finding) -> str:
    return one_line(f"{f.location.path}:{f.location.line} {f.name}" if f.location else f.name)


def _text(f: Finding) -> str:
    cost = f"\ncost: {duration(f.cost_ns)} per {f.values.get('cost_per', 'capture')}" if f.cost_ns else ""
    return f"{f.severity.name} {f.rule} {f.name}\n{f.message}{cost}\ncure: {f.fix}"
