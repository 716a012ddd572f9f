"""One cause, one finding: gather evidence by rule, place and group, and rank what comes out."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpudoctor.model import Evidence, Finding, Location
from gpudoctor.rulebook.rule import Rule
from gpudoctor.units import render

KEPT_EVIDENCE = 20
NEIGHBOURS = 5  # lines

_Key = tuple[str, str, int, str]
_Counts = tuple[Mapping[int, int], Mapping[int, int]]


def findings_from(pairs: Iterable[tuple[Rule, Evidence]], steps: Mapping[int, int] | None = None, traced: Mapping[int, int] | None = None) -> list[Finding]:
    """Group evidence into findings, worst first.

    `steps` counts the steady steps of each rank, `traced` those of them that its capture saw (all, if left out); with
    them costs are ns per step, without them per capture.
    Evidence that names no line of the source (a run, a capture, a log) joins the rule's finding there, if there is just one.
    """
    rules: dict[str, Rule] = {}
    groups: dict[_Key, list[Evidence]] = defaultdict(list)
    for rule, evidence in pairs:
        rules[rule.id] = rule
        groups[_key(rule, evidence)].append(evidence)
    _join_source(groups)
    _join_neighbours(groups)
    counts = steps or {}, steps or {} if traced is None else traced
    found = [_finding(rules[key[0]], key[3], items, counts) for key, items in groups.items()]
    return sorted(_causes_only(found, rules), key=rank_key)


def _causes_only(found: list[Finding], rules: Mapping[str, Rule]) -> list[Finding]:
    """Drop the effects whose cause was seen too; only what a rank showed counts as seen."""
    seen = {f.name for f in found if f.ranks}
    return [f for f in found if not seen.intersection(rules[f.rule].yields_to)]


def rank_key(finding: Finding) -> tuple[Any, ...]:
    """Sorts by severity, then confidence, then cost, then place."""
    place = finding.location
    return (-finding.severity, -finding.confidence, -(finding.cost_ns or 0), finding.rule,
            place.path if place else "", place.line if place else 0, finding.message)


def _key(rule: Rule, evidence: Evidence) -> _Key:
    place = evidence.location
    return (rule.id, place.path if place else "", place.line if place else 0, evidence.group)


def _join_source(groups: dict[_Key, list[Evidence]]) -> None:
    source = {k for k, items in groups.items() if k[1] and not _from_log(items)}
    for key in [k for k in groups if k not in source]:
        placed = [k for k in source if k[0] == key[0]]
        if not placed and not key[1]:
            placed = [k for k in groups if k[0] == key[0] and k[1]]
        if len(placed) == 1:
            groups[placed[0]].extend(replace(e, location=None) for e in groups.pop(key))


def _join_neighbours(groups: dict[_Key, list[Evidence]]) -> None:
    """A rank names the line or the function where the fault struck, the source the line to change: join them where they lie close together."""
    told = [k for k, items in groups.items() if k[1] and all(e.rank is None for e in items)]
    for key in [k for k, items in groups.items() if k[1] and k not in told]:
        last = max((e.location.end_line or 0 for e in groups[key] if e.location), default=0)
        near = [k for k in told if k[:2] == key[:2] and key[2] - NEIGHBOURS <= k[2] <= max(last, key[2] + NEIGHBOURS)]
        near = [k for k in near if k[2] == key[2]] or near
        if len(near) == 1 and key in groups:
            groups[near[0]].extend(replace(e, location=None) for e in groups.pop(key))


def _from_log(items: list[Evidence]) -> bool:
    """True if a log told all of it: such evidence names its line in the values `log` and `log_line`."""
    return all("log_line" in e.values for e in items)


def _finding(rule: Rule, group: str, items: list[Evidence], steps: _Counts) -> Finding:
    items = sorted(items, key=lambda e: (-(e.cost_ns or 0), e.rank or 0, e.start_ns or 0))
    place = next((e.location for e in items if e.location), None)
    ranks = sorted({e.rank for e in items if e.rank is not None})
    measured = [e for e in items if e.rank is not None or e.cost_ns is not None]
    count = sum(e.count for e in measured) or sum(e.count for e in items)
    values: dict[str, Any] = {}
    for item in reversed(items):
        values |= item.values
    cost = _cost(items, steps, values)
    severity = max((e.severity if e.severity is not None else rule.severity) for e in items)
    confidence = max((e.confidence if e.confidence is not None else rule.confidence) for e in items)
    words = values | {
        "count": count, "cost_ns": cost, "cost": values.get("cost_text"), "ranks": _listed("rank", ranks),
        "place": f"{place.path}:{place.line}" if place else None, "group": group, "evidence": len(items),
    }
    return Finding(
        rule=rule.id, name=rule.slug, severity=severity, confidence=confidence,
        message=render(str(values.pop("message", rule.message)), words), fix=render(str(values.pop("fix", rule.fix)), words),
        location=place, ranks=ranks, count=count, cost_ns=cost, values=values, evidence=items[:KEPT_EVIDENCE],
        devices=sorted({e.device for e in items if e.device is not None}),
        streams=sorted({e.stream for e in items if e.stream is not None}),
        fingerprint=_fingerprint(rule, place, group, values),
    )


def _cost(items: list[Evidence], steps: _Counts, values: dict[str, Any]) -> int | None:
    """What the worst rank loses; seen in a capture and by the rank itself, it is the same loss, not two."""
    totals: dict[tuple[int, bool], int] = defaultdict(int)
    for item in items:
        if item.cost_ns is not None:
            totals[-1 if item.rank is None else item.rank, item.traced] += item.cost_ns
    if not totals:
        return None
    over = {(rank, traced): steps[traced].get(rank, 0) for rank, traced in totals}
    per_step = all(over.values())
    values["cost_per"] = "step" if per_step else "capture"
    return round(max(total / (over[key] if per_step else 1) for key, total in totals.items()))


def _fingerprint(rule: Rule, place: Location | None, group: str, values: Mapping[str, Any]) -> str:
    text = "\0".join((rule.id, place.path if place else "", str(values.get("source_line", "")), group))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _listed(noun: str, numbers: list[int]) -> str:
    if not numbers:
        return ""
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    if len(numbers) > 4 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{noun}s {numbers[0]}–{numbers[-1]}"
    shown = ", ".join(map(str, numbers[:6])) + (", …" if len(numbers) > 6 else "")
    return f"{noun}s {shown}"
