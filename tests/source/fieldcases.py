"""The field cases: faults that people reported, their fixed twins, and correct code that looks like a fault."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpudoctor.model import Finding, Severity
from gpudoctor.rulebook.detect import detect_in_sources
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import RuleBook, load_rules
from gpudoctor.source import Module

FOLDER = Path(__file__).parents[1] / "data" / "cases"


@dataclass(frozen=True)
class Case:
    """One file of a case; `slug` is empty where nothing may be found."""

    name: str
    path: Path
    slug: str
    lines: tuple[int, ...]

    @property
    def text(self) -> str:
        return self.path.read_text("utf-8")


@cache
def book() -> RuleBook:
    return load_rules(cases=False)


def cases() -> list[Case]:
    """Every file of every case."""
    out = []
    for folder in sorted(FOLDER.iterdir()):
        truth = tomllib.loads((folder / "expected.toml").read_text("utf-8"))
        seen_by_lint = truth["kind"] == "lint" or "lint" in truth["also"]
        for path in sorted(folder.glob("*.py")):
            faulty = path.name == "train.py" and not truth["negative"]
            if faulty and not seen_by_lint:
                continue
            out.append(Case(f"{folder.name}/{path.name}", path, truth["rule"] if faulty else "", tuple(truth["lines"]) if faulty else ()))
    return out


def findings(modules: list[Module]) -> list[Finding]:
    return findings_from(detect_in_sources(book(), modules).evidence)


def loud(found: list[Finding]) -> set[str]:
    """Slugs at warning and above."""
    return {f.name for f in found if f.severity >= Severity.warning}
