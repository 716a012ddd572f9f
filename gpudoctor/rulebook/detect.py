"""Run detectors over tables and sources; a detector whose evidence is missing abstains."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from gpudoctor.errors import RuleError
from gpudoctor.model import Abstention, Confidence, Evidence, Location, Severity
from gpudoctor.rulebook.load import RuleBook
from gpudoctor.rulebook.missing import unanswered, words
from gpudoctor.rulebook.rule import Detector, Kind, Rule

Params = Mapping[str, Mapping[str, Any]]
_AT_ONCE = 2
"""Detectors at a time: planning a query is work for one core, however many the database has."""


class Tables(Protocol):
    """What a detector may ask of a store."""

    captured: set[str]

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]: ...


class Module(Protocol):
    """What a source detector is given: one file of the project."""

    language: str


@dataclass(slots=True)
class Seen:
    """What detectors said: evidence by rule, and who could not answer."""

    evidence: list[tuple[Rule, Evidence]] = field(default_factory=list)
    abstained: list[Abstention] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)


def detect_in_tables(book: RuleBook, store: Tables, kinds: Iterable[Kind], overrides: Params | None = None) -> Seen:
    """Run every table detector of the given kinds."""
    seen, kinds = Seen(), tuple(kinds)
    asked = [(r, d, r.values(dict((overrides or {}).get(r.slug, {})))) for r in book for d in r.detectors if d.kind in kinds and d.kind != "source"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for part in pool.map(lambda a: _run_on_tables(a[0], a[1], store, a[2]), asked):
            seen.evidence += part.evidence
            seen.abstained += part.abstained
            seen.answered |= part.answered
    seen.abstained = list({a.rule: a for a in reversed(seen.abstained) if a.rule not in seen.answered}.values())[::-1]
    return seen


def detect_in_sources(book: RuleBook, modules: Iterable[Module], overrides: Params | None = None) -> Seen:
    """Run every source detector over every module of its language."""
    seen = Seen()
    pairs = [(r, d, r.values(dict((overrides or {}).get(r.slug, {})))) for r in book for d in r.detectors if d.kind == "source"]
    for module in modules:
        for rule, detector, params in pairs:
            if detector.language == module.language:
                seen.evidence.extend((rule, e) for e in _check(detector.file)(module, params))
    return seen


def _run_on_tables(rule: Rule, detector: Detector, store: Tables, params: dict[str, Any]) -> Seen:
    seen = Seen()
    missing = unanswered(detector.kind, detector.needs, store.captured)
    if missing:
        seen.abstained.append(Abstention(rule.id, rule.slug, *words(missing)))
        return seen
    if detector.file.suffix == ".py":
        found: Iterator[Evidence] = iter(_check(detector.file)(store, params))
    else:
        found = _rows(rule, detector, store, params)
    answered = True
    gathered: list[Evidence] = []
    try:
        gathered.extend(found)
    except RuleError as error:
        answered = False
        seen.abstained.append(Abstention(rule.id, rule.slug, str(error), "a report of this error to the rule's authors"))
    for item in gathered:
        if "abstain" in item.values:
            answered = False
            seen.abstained.append(Abstention(rule.id, rule.slug, str(item.values["abstain"]), detector.would_help or ", ".join(detector.needs)))
        else:
            item.traced = detector.kind == "trace"
            seen.evidence.append((rule, item))
    if answered:
        seen.answered.add(rule.id)
    return seen


def _rows(rule: Rule, detector: Detector, store: Tables, params: dict[str, Any]) -> Iterator[Evidence]:
    sql = _text(detector.file)
    used = {k: v for k, v in params.items() if f"${k}" in sql}
    for row in store.query(sql, used):
        if row.get("abstain", "") is None:
            del row["abstain"]
        yield evidence_from_row(row, rule)


def evidence_from_row(row: dict[str, Any], rule: Rule) -> Evidence:
    """Turn a row into Evidence: columns named like its fields (and path, line, end_line, group_key) fill them, the rest are values."""
    row = dict(row)
    path, line, end_line = row.pop("path", None), row.pop("line", None), _int(row.pop("end_line", None))
    severity, confidence = row.pop("severity", None), row.pop("confidence", None)
    group = row.pop("group_key", None)
    names = ("rank", "device", "stream", "start_ns", "end_ns", "cost_ns")
    fields: dict[str, Any] = {n: _int(row.pop(n, None)) for n in names}
    count = row.pop("count", None)
    return Evidence(
        **fields, count=1 if count is None else int(count), group="" if group is None else str(group),
        location=Location(str(path), int(line), end_line) if path is not None and line is not None else None,
        severity=Severity[severity] if severity else None, confidence=Confidence[confidence] if confidence else None,
        values={k: v for k, v in row.items() if v is not None},
    )


def _int(value: Any) -> int | None:
    return None if value is None else int(value)


@cache
def _text(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def _check(path: Path) -> Callable[..., Iterable[Evidence]]:
    spec = importlib.util.spec_from_file_location(f"gpudoctor_rule_{path.stem.replace('.', '_')}", path)
    if spec is None or spec.loader is None:
        raise RuleError(f"{path}: cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check = getattr(module, "check", None)
    if not callable(check):
        raise RuleError(f"{path}: has no function check")
    return check  # type: ignore[no-any-return]
