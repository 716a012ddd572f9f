"""What gpudoctor says: evidence, findings, abstentions and the report that holds them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

SCHEMA = "gpudoctor.report/1"


class Severity(IntEnum):
    """How bad it is; larger is worse."""

    note = 0
    perf = 1
    warning = 2
    error = 3


class Confidence(IntEnum):
    """How sure we are; `possible` never fails a gate."""

    possible = 0
    likely = 1
    certain = 2


@dataclass(frozen=True, slots=True)
class Location:
    """A place in the user's source; lines and columns count from 1."""

    path: str
    line: int
    end_line: int | None = None
    column: int | None = None


@dataclass(slots=True)
class Evidence:
    """One observation by a detector.

    Times are int64 ns on the capture's clock. `cost_ns` is the whole time lost to this observation on its rank;
    `count` is how many events it stands for. `group` names the cause: evidence with one rule, location and group
    becomes one finding. `severity` and `confidence` override the rule's. `traced` says that a capture showed it,
    which may hold fewer steps than the run.
    """

    rank: int | None = None
    device: int | None = None
    stream: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    cost_ns: int | None = None
    count: int = 1
    location: Location | None = None
    group: str = ""
    severity: Severity | None = None
    confidence: Confidence | None = None
    traced: bool = False
    values: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Finding:
    """One cause, with all the evidence for it.

    `cost_ns` is ns per step and rank where `values["cost_per"] == "step"`, else ns over the whole capture.
    """

    rule: str
    name: str
    severity: Severity
    confidence: Confidence
    message: str
    fix: str
    location: Location | None = None
    ranks: list[int] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    streams: list[int] = field(default_factory=list)
    count: int = 0
    cost_ns: int | None = None
    values: dict[str, Any] = field(default_factory=dict)
    evidence: list[Evidence] = field(default_factory=list)
    fingerprint: str = ""

    def fails(self, fail_on: Severity) -> bool:
        """True if this finding reaches the threshold of a gate."""
        return self.severity >= fail_on and self.confidence > Confidence.possible


@dataclass(frozen=True, slots=True)
class Abstention:
    """A rule that could not answer, why, and which evidence would let it."""

    rule: str
    name: str
    reason: str
    needs: str


@dataclass(slots=True)
class Subject:
    """What was examined; `kind` is source, capture, run or environment."""

    kind: str
    paths: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """Everything a reporter needs; nothing in it refers to open files or tables.

    `plots` are rows for the charts of the HTML page, by chart; they are not part of the JSON document.
    """

    subject: Subject
    findings: list[Finding] = field(default_factory=list)
    abstained: list[Abstention] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    plots: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.findings:
            return "findings"
        return "inconclusive" if self.summary.get("inconclusive") else "clean"

    @property
    def tally(self) -> str:
        """How many findings of each severity, worst first, in words; "" without findings."""
        counts = Counter(f.severity for f in self.findings)
        return ", ".join(f"{n} {s.name}{'s' if n > 1 and s is not Severity.perf else ''}" for s, n in sorted(counts.items(), reverse=True))

    def exit_code(self, fail_on: Severity, required: tuple[str, ...] = ()) -> int:
        """0, 1 or 3 by the contract of all commands; `required` are rule ids or slugs that must have answered."""
        if any(f.fails(fail_on) for f in self.findings):
            return 1
        if any(a.rule in required or a.name in required for a in self.abstained):
            return 3
        return 0
