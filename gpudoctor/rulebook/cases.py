"""Run the cases inside the rules: each twice, its rows shuffled, so that no answer hangs on their order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from gpudoctor.model import Evidence
from gpudoctor.rulebook.detect import Seen, detect_in_sources, detect_in_tables
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import RuleBook
from gpudoctor.rulebook.rows import intern_names
from gpudoctor.rulebook.rule import Case, Rule
from gpudoctor.source import parse_sources
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store


@dataclass(frozen=True, slots=True)
class CaseResult:
    """How a case went; `problem` is empty when it held."""

    rule: str
    case: str
    problem: str


def run_cases(book: RuleBook) -> Iterator[CaseResult]:
    """Run every case of every rule."""
    for rule in book:
        for case in rule.cases:
            yield CaseResult(rule.id, case.name, run_case(rule, case))


def run_case(rule: Rule, case: Case) -> str:
    """Return what is wrong with the case, or an empty string."""
    if case.kind == "source":
        modules = parse_sources(case.sources, case_language(rule))
        return _judge(rule, case, detect_in_sources(RuleBook((rule,)), modules))
    problems = {_judge(rule, case, _on_tables(rule, case, seed)) for seed in (1, 2)}
    if len(problems) > 1:
        return "the answer depends on the order of the rows: " + " / ".join(sorted(problems))
    return problems.pop()


def case_language(rule: Rule) -> str:
    """The language of the rule's source detector."""
    return next((d.language for d in rule.detectors if d.kind == "source"), "python")


def _on_tables(rule: Rule, case: Case, seed: int) -> Seen:
    store = Store()
    shuffle = random.Random(seed).shuffle
    for table, rows in intern_names(case.tables).items():
        rows = list(rows)
        shuffle(rows)
        store.add_rows(table, rows)
    derive(store)
    seen = detect_in_tables(RuleBook((rule,)), store, [case.kind])
    store.close()
    return seen


def _judge(rule: Rule, case: Case, seen: Seen) -> str:
    evidence: list[Evidence] = [e for _, e in seen.evidence]
    if case.abstains:
        return "" if seen.abstained and not evidence else "should abstain"
    if seen.abstained and case.kind != "source":
        return f"abstained: {seen.abstained[0].reason}"
    if bool(evidence) != case.fires:
        return f"fired: {evidence[0]}" if evidence else "stayed quiet"
    if case.lines and {e.location.line for e in evidence if e.location} != set(case.lines):
        return f"lines {sorted(e.location.line for e in evidence if e.location)} instead of {list(case.lines)}"
    if not case.fires:
        return ""
    finding = findings_from([(rule, e) for e in evidence])[0]
    if case.count is not None and finding.count != case.count:
        return f"count {finding.count} instead of {case.count}"
    if case.severity is not None and finding.severity != case.severity:
        return f"severity {finding.severity.name} instead of {case.severity.name}"
    for key, value in case.values.items():
        if finding.values.get(key) != value:
            return f"{key} is {finding.values.get(key)!r} instead of {value!r}"
    if "?" in finding.message and "?" not in rule.message:
        return f"the message has an unfilled place: {finding.message}"
    return ""
