"""The report of a lint: findings from source evidence alone, without the tables."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from gpudoctor.config import Config
from gpudoctor.model import Report, Subject
from gpudoctor.report.places import mark, shorten
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.known import new_findings
from gpudoctor.rulebook.lint import Linted
from gpudoctor.rulebook.suppress import split_suppressed
from gpudoctor.source.project import lines_at


def lint_report(paths: list[Path], linted: Linted, config: Config, known: Counter[str] | None = None) -> Report:
    """Group the evidence, leave out what is silenced or known, and count files and problems in the summary."""
    shorten(e for _, e in linted.evidence)
    found = findings_from(linted.evidence)
    mark(found)
    kept, silenced = split_suppressed(found, config.per_file_ignores, lines_at)
    kept, hidden = new_findings(kept, known or Counter())
    summary = {"files": linted.files, "problems": [{"path": p.path, "reason": p.reason} for p in linted.problems]}
    if silenced:
        summary["suppressed"] = len(silenced)
    if hidden:
        summary["known"] = hidden
    return Report(Subject("source", [str(p) for p in paths]), kept, [], summary)
