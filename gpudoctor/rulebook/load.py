"""Read rules from their folders; a malformed one is refused with the key that is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor.errors import RuleError
from gpudoctor.model import Confidence, Severity
from gpudoctor.resources import data_dir
from gpudoctor.rulebook.rows import parse_rows
from gpudoctor.rulebook.rule import KINDS, Case, Detector, Param, Rule

_REQUIRED = ("id", "slug", "severity", "summary", "message", "why", "fix", "example", "detectors", "cases")


@dataclass(frozen=True, slots=True)
class RuleBook:
    """All rules at hand, by id."""

    rules: tuple[Rule, ...]

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def find(self, name: str) -> Rule:
        """Return the rule with that id or slug; RuleError if there is none."""
        for rule in self.rules:
            if name in (rule.id, rule.slug):
                return rule
        raise RuleError(f"no rule {name}; `gpudoctor rules list` shows them all")

    def choose(self, select: Iterable[str] = (), ignore: Iterable[str] = ()) -> RuleBook:
        """Keep rules that match `select` (all if empty) and none of `ignore`; RuleError for a name that matches nothing."""
        select, ignore = tuple(select), tuple(ignore)
        for name in (*select, *ignore):
            if not any(rule.matches(name) for rule in self.rules):
                raise RuleError(f"no rule matches {name}; `gpudoctor rules list` shows them all")
        return RuleBook(tuple(
            r for r in self.rules if (not select or any(r.matches(s) for s in select)) and not any(r.matches(i) for i in ignore)
        ))


def load_rules(extra: Iterable[Path] = (), allow_python: bool = False, cases: bool = True) -> RuleBook:
    """Load the shipped rules and those in `extra` folders; an extra rule of the same id takes a shipped one's place.

    Without `cases` the rules' own cases are not read, which takes a third of the time.
    """
    rules = {r.id: r for r in _folder(data_dir("rules"), True, cases)}
    for folder in extra:
        if not folder.is_dir():
            raise RuleError(f"{folder}: no such folder of rules")
        rules |= {r.id: r for r in _folder(folder, allow_python, cases)}
    return RuleBook(tuple(sorted(rules.values(), key=lambda r: r.id)))


def _folder(folder: Path, allow_python: bool, cases: bool) -> Iterator[Rule]:
    taken: dict[str, Path] = {}
    for path in sorted(folder.glob("GD*.toml")):
        rule = load_rule(path, cases)
        for name in (rule.id, rule.slug):
            if name in taken:
                raise RuleError(f"{path}: {name} is taken by {taken[name].name}; choose another")
            taken[name] = path
        if not allow_python and any(d.file.suffix == ".py" for d in rule.detectors):
            raise RuleError(f"{path}: has a Python detector, which runs as code; add --allow-python-rules if you trust it")
        yield rule


_BLOCK = re.compile(r"^\[\[?(cases|detectors|example|params\.\w+)\]\]?$", re.M)


def _without_cases(text: str) -> str:
    """A rule's text with its `[[cases]]` blocks cut out, wherever among the others they stand."""
    marks = [*_BLOCK.finditer(text)]
    ends = [*(m.start() for m in marks[1:]), len(text)]
    kept = [text[m.start(): end] for m, end in zip(marks, ends, strict=True) if m[1] != "cases"]
    return text[: marks[0].start() if marks else len(text)] + "".join(kept)


def load_rule(path: Path, cases: bool = True) -> Rule:
    """Read one rule; RuleError names the file and the key."""
    try:
        text = path.read_text("utf-8")
        raw = tomllib.loads(text if cases else _without_cases(text))
    except (OSError, ValueError) as error:
        raise RuleError(f"{path}: {error}") from None
    if not cases:
        raw["cases"] = ["not read"]
    for key in _REQUIRED:
        if not raw.get(key):
            raise RuleError(f"{path}: lacks {key}")
    if not re.fullmatch(r"GD\d{3}", raw["id"]) or path.stem != f"{raw['id']}_{raw['slug'].replace('-', '_')}":
        raise RuleError(f"{path}: the file must be named GDnnn_slug after its id and slug")
    try:
        rule = _rule(path, raw, cases)
    except (KeyError, TypeError, ValueError) as error:
        raise RuleError(f"{path}: {error!r}") from None
    if cases and (not any(c.fires or c.abstains for c in rule.cases) or all(c.fires for c in rule.cases)):
        raise RuleError(f"{path}: needs one case that fires and one that stays quiet")
    return rule


def _rule(path: Path, raw: dict[str, Any], cases: bool) -> Rule:
    detectors = tuple(_detector(path, d) for d in raw["detectors"])
    example = raw["example"]
    return Rule(
        id=raw["id"], slug=raw["slug"], severity=Severity[raw["severity"]],
        confidence=Confidence[raw.get("confidence", "certain")],
        summary=raw["summary"], message=raw["message"], why=raw["why"].strip(), fix=raw["fix"].strip(),
        bad=example["bad"].strip("\n"), good=example["good"].strip("\n"), language=example.get("language", "python"),
        params=tuple(Param(n, p["value"], p["unit"], p["doc"]) for n, p in raw.get("params", {}).items()),
        detectors=detectors, cases=tuple(_case(c, detectors) for c in raw["cases"]) if cases else (),
        references=tuple(raw.get("references", ())), path=path, yields_to=tuple(raw.get("yields_to", ())),
    )


def _detector(path: Path, raw: dict[str, Any]) -> Detector:
    if raw["kind"] not in KINDS:
        raise ValueError(f"detector kind {raw['kind']} is none of {', '.join(KINDS)}")
    file = path.with_suffix("." + raw["file"])
    if not file.is_file():
        raise ValueError(f"detector {file.name} is not there")
    return Detector(raw["kind"], file, tuple(raw.get("needs", ())), raw.get("language", "python"), raw.get("would_help", ""))


def _case(raw: dict[str, Any], detectors: tuple[Detector, ...]) -> Case:
    sources = raw.get("sources", {})
    if "source" in raw:
        sources = {"train.py": raw["source"], **sources}
    kind = raw.get("kind", "source" if sources else next(d.kind for d in detectors if d.kind != "source"))
    severity = raw.get("severity")
    return Case(
        name=raw["name"], fires=raw["fires"], kind=kind, sources=sources, lines=tuple(raw.get("lines", ())),
        tables={name: parse_rows(name, text) for name, text in raw.get("tables", {}).items()},
        abstains=raw.get("abstains", False), values=raw.get("values", {}), count=raw.get("count"),
        severity=Severity[severity] if severity else None,
    )
