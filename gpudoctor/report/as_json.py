"""The report as JSON, schema gpudoctor.report/1; and back."""

from __future__ import annotations

import json
import math
from typing import Any, TextIO

from gpudoctor import __version__
from gpudoctor.errors import InputError
from gpudoctor.model import (
    SCHEMA,
    Abstention,
    Confidence,
    Evidence,
    Finding,
    Location,
    Report,
    Severity,
    Subject,
)


def render(report: Report, stream: TextIO) -> None:
    """Write one JSON document and a newline."""
    json.dump(data(report), stream, indent=1, ensure_ascii=False, default=str, allow_nan=False)
    stream.write("\n")


def data(report: Report) -> dict[str, Any]:
    """The document as plain values; NaN and infinities become text."""
    document = {
        "schema": SCHEMA,
        "tool": {"name": "gpudoctor", "version": __version__},
        "subject": {"kind": report.subject.kind, "paths": report.subject.paths},
        "verdict": report.verdict,
        "findings": [_finding(f) for f in report.findings],
        "abstained": [{"rule": a.rule, "name": a.name, "reason": a.reason, "needs": a.needs} for a in report.abstained],
        "summary": report.summary,
    }
    clean: dict[str, Any] = _finite(document)
    return clean


def _finding(f: Finding) -> dict[str, Any]:
    return {
        "rule": f.rule, "name": f.name, "severity": f.severity.name, "confidence": f.confidence.name, "message": f.message,
        "location": _location(f.location), "ranks": f.ranks, "devices": f.devices, "streams": f.streams, "count": f.count,
        "cost_ns": f.cost_ns, "values": f.values, "evidence": [_evidence(e) for e in f.evidence], "fix": f.fix,
        "fingerprint": f.fingerprint,
    }


def _location(place: Location | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {"path": place.path, "line": place.line, "end_line": place.end_line or place.line, "column": place.column or 1}


def _evidence(e: Evidence) -> dict[str, Any]:
    return {"rank": e.rank, "start_ns": e.start_ns, "end_ns": e.end_ns, "values": e.values}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return value


def load(text: str, where: str) -> Report:
    """Read a report back; InputError if the text is not one."""
    try:
        raw = json.loads(text)
        if raw["schema"] != SCHEMA:
            raise InputError(f"{where}: schema {raw['schema']}, this gpudoctor reads {SCHEMA}")
        findings = [_load_finding(f) for f in raw["findings"]]
        abstained = [Abstention(a["rule"], a["name"], a["reason"], a["needs"]) for a in raw["abstained"]]
        return Report(Subject(raw["subject"]["kind"], raw["subject"]["paths"]), findings, abstained, raw["summary"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{where}: not a gpudoctor report ({error!r}); make one with --format json") from None


def _load_finding(f: dict[str, Any]) -> Finding:
    place = f["location"]
    return Finding(
        rule=f["rule"], name=f["name"], severity=Severity[f["severity"]], confidence=Confidence[f["confidence"]],
        message=f["message"], fix=f["fix"], ranks=f["ranks"], devices=f["devices"], streams=f["streams"], count=f["count"],
        cost_ns=f["cost_ns"], values=f["values"], fingerprint=f["fingerprint"],
        location=Location(place["path"], place["line"], place["end_line"], place["column"]) if place else None,
        evidence=[Evidence(rank=e["rank"], start_ns=e["start_ns"], end_ns=e["end_ns"], values=e["values"]) for e in f["evidence"]],
    )
