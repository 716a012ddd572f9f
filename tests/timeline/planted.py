"""The planted captures: each with its truth in expected.toml; read once, whichever test asks."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from gpudoctor.model import Abstention, Finding
from gpudoctor.report.build import steps_by_rank
from gpudoctor.rulebook.detect import detect_in_tables
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import RuleBook, load_rules
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest

FOLDER = Path(__file__).parents[1] / "data" / "captures" / "planted"


def truths(folder: str) -> list[dict[str, Any]]:
    """Every file of a folder with what expected.toml says of it."""
    return tomllib.loads((FOLDER / folder / "expected.toml").read_text("utf-8"))["file"]


@cache
def read(*names: str) -> Ingested:
    """The derived store of one capture, or of several ranks together; names are folder/file without suffix."""
    return ingest([next(FOLDER.glob(f"{name}.*")) for name in names], IngestOptions(cache=False))


@cache
def _book() -> RuleBook:
    return load_rules()


@cache
def diagnose(*names: str) -> tuple[list[Finding], list[Abstention]]:
    """Findings and abstentions of all rules."""
    taken = read(*names)
    seen = detect_in_tables(_book(), taken.store, taken.kinds)
    return findings_from(seen.evidence, *steps_by_rank(taken.store)), seen.abstained
