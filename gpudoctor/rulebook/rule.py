"""What a rule is: one stem with its words, parameters, detectors and cases."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from gpudoctor.model import Confidence, Severity

Kind = Literal["source", "trace", "run", "memory", "log", "machine"]
KINDS: tuple[Kind, ...] = ("source", "trace", "run", "memory", "log", "machine")


@dataclass(frozen=True, slots=True)
class Param:
    """A threshold: its value, unit and one line."""

    name: str
    value: Any
    unit: str
    doc: str


@dataclass(frozen=True, slots=True)
class Detector:
    """One way to see the fault.

    `file` is `STEM.sql`, `STEM.NAME.sql` (one SELECT over the tables) or `STEM.py`, `STEM.NAME.py` with
    `check(module, params)` for kind source and `check(store, params)` for the others, both yielding Evidence.
    `needs` are tables without which it abstains; `would_help` says which evidence would let it answer.
    """

    kind: Kind
    file: Path
    needs: tuple[str, ...] = ()
    language: str = "python"
    would_help: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """A tiny input with the answer: rows of tables, or a source text (or several, by file name)."""

    name: str
    fires: bool
    kind: Kind
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    lines: tuple[int, ...] = ()
    abstains: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    count: int | None = None
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault by its id and slug. Texts are Markdown; `message` is a template for `units.render`.

    `yields_to` are slugs of causes: where one of them was seen in the same run, this rule, which sees the effect, is silent.
    """

    id: str
    slug: str
    severity: Severity
    confidence: Confidence
    summary: str
    message: str
    why: str
    fix: str
    bad: str
    good: str
    language: str
    params: tuple[Param, ...]
    detectors: tuple[Detector, ...]
    cases: tuple[Case, ...]
    references: tuple[str, ...]
    path: Path
    yields_to: tuple[str, ...] = ()

    def values(self, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        """Parameters by name, with a user's overrides laid over them."""
        return {p.name: p.value for p in self.params} | (overrides or {})

    def matches(self, name: str) -> bool:
        """True if `name` is this rule's id or slug, or a prefix of its id such as `GD1`."""
        return name in (self.id, self.slug) or (name.startswith("GD") and self.id.startswith(name))
