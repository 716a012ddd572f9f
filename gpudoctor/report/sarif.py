"""SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import json
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, TextIO
from urllib.parse import quote

from gpudoctor import __version__
from gpudoctor.errors import RuleError
from gpudoctor.model import Confidence, Finding, Location, Report, Severity
from gpudoctor.report.plain import one_line, plain
from gpudoctor.rulebook.docs import page
from gpudoctor.rulebook.load import RuleBook, load_rules
from gpudoctor.units import duration

LEVELS = {Severity.error: "error", Severity.warning: "warning", Severity.perf: "warning", Severity.note: "note"}
_PRECISION = {Confidence.certain: "very-high", Confidence.likely: "high", Confidence.possible: "low"}
SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"


def render(report: Report, stream: TextIO) -> None:
    """Write one SARIF log with one run."""
    json.dump(log(report), stream, indent=1, ensure_ascii=False)
    stream.write("\n")


def log(report: Report) -> dict[str, Any]:
    """The SARIF log as plain values; rules are those that found something."""
    book = load_rules(cases=False)
    ids = sorted({f.rule for f in report.findings})
    rules = [_rule(book, rule_id, next(f for f in report.findings if f.rule == rule_id)) for rule_id in ids]
    return {
        "$schema": SCHEMA_URI, "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {"name": "gpudoctor", "version": __version__, "rules": rules}},
            "columnKind": "unicodeCodePoints",
            "originalUriBaseIds": {"SRCROOT": {"description": {"text": "The folder in which gpudoctor was started."}}},
            "results": [_result(f, ids.index(f.rule)) for f in report.findings],
            "invocations": [{
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": plain(f"{a.name} abstained: {a.reason}; {a.needs} would tell")}, "associatedRule": {"id": a.rule}}
                    for a in report.abstained
                ],
            }],
        }],
    }


def _rule(book: RuleBook, rule_id: str, finding: Finding) -> dict[str, Any]:
    try:
        rule = book.find(rule_id)
    except RuleError:
        return {"id": rule_id, "name": finding.name, "shortDescription": {"text": plain(finding.name)}}
    out: dict[str, Any] = {
        "id": rule.id, "name": rule.slug, "shortDescription": {"text": rule.summary}, "fullDescription": {"text": rule.why},
        "help": {"text": rule.fix, "markdown": page(rule)},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"precision": _PRECISION[rule.confidence], "tags": ["gpu", "distributed-training"], "problem.severity": LEVELS[rule.severity].replace("note", "recommendation")},
    }
    if web := next((r for r in rule.references if r.startswith("https://")), None):
        out["helpUri"] = web
    return out


def _result(f: Finding, index: int) -> dict[str, Any]:
    cost = f" Costs {duration(f.cost_ns)} per {f.values.get('cost_per', 'capture')}." if f.cost_ns else ""
    result: dict[str, Any] = {
        "ruleId": f.rule, "ruleIndex": index, "level": LEVELS[f.severity],
        "message": {"text": plain(f"{f.message}{cost} Cure: {f.fix}")},
        "partialFingerprints": {"gpudoctor/v1": f.fingerprint},
        "occurrenceCount": max(1, f.count),
        "properties": {"severity": f.severity.name, "confidence": f.confidence.name, "ranks": f.ranks, "cost_ns": f.cost_ns},
    }
    if f.location:
        result["locations"] = [_place(f.location)]
    return result


def _place(place: Location) -> dict[str, Any]:
    region: dict[str, int] = {"startLine": max(1, place.line)}
    if place.column:
        region["startColumn"] = max(1, place.column)
    if place.end_line and place.end_line >= place.line:
        region["endLine"] = place.end_line
    return {"physicalLocation": {"artifactLocation": artifact(place.path), "region": region}}


def artifact(path: str) -> dict[str, str]:
    """A path as SARIF wants it: relative ones against SRCROOT, absolute ones as file URIs."""
    text = one_line(path, 4000)
    if PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute():
        return {"uri": "file://" + quote("/" + text.replace("\\", "/").lstrip("/"))}
    return {"uri": quote(text.replace("\\", "/").removeprefix("./")), "uriBaseId": "SRCROOT"}
