"""From evidence to a report: run the rules that apply, drop what is silenced, add the summary."""

from __future__ import annotations

from collections.abc import Iterable

from gpudoctor.config import Config
from gpudoctor.model import Report, Subject
from gpudoctor.report.facts import summarise
from gpudoctor.report.function_places import widen
from gpudoctor.report.places import mark, shorten
from gpudoctor.report.plots import chart_rows
from gpudoctor.rulebook.detect import Seen, detect_in_tables
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.lint import lint_project
from gpudoctor.rulebook.load import RuleBook
from gpudoctor.rulebook.rule import Kind
from gpudoctor.rulebook.suppress import split_suppressed
from gpudoctor.source import Project
from gpudoctor.timeline.store import Store


def build_report(
    subject: Subject,
    book: RuleBook,
    config: Config,
    *,
    store: Store | None = None,
    kinds: Iterable[Kind] = (),
    project: Project | None = None,
    charts: bool = False,
) -> Report:
    """Run `book` over the tables (detectors of `kinds`) and the sources, and gather one report."""
    seen = Seen()
    if project is not None:
        seen.evidence += lint_project(project, book, config.params)
    if store is not None:
        tables = detect_in_tables(book, store, kinds, config.params)
        seen.evidence += tables.evidence
        seen.abstained += tables.abstained
    shorten(e for _, e in seen.evidence)
    widen((e for _, e in seen.evidence), [e.location.path for _, e in seen.evidence if e.location and not e.traced])
    found = findings_from(seen.evidence, *(steps_by_rank(store) if store else ()))
    mark(found)
    kept, silenced = split_suppressed(found, config.per_file_ignores)
    summary = summarise(store) if store is not None else {}
    if project is not None:
        summary["files"] = len(project.modules)
        summary["problems"] = [{"path": p.path, "reason": p.reason} for p in project.problems]
    if silenced:
        summary["suppressed"] = len(silenced)
    return Report(subject, kept, seen.abstained, summary, chart_rows(store, kept) if charts and store is not None else {})


def steps_by_rank(store: Store) -> tuple[dict[int, int], dict[int, int]]:
    """Steady steps of each rank, and those of them that its capture saw."""
    return _steady(store, "step"), _steady(store, "traced_step")


def _steady(store: Store, table: str) -> dict[int, int]:
    """Steady steps of each rank."""
    rows = store.query(f"SELECT rank, count(*) AS n FROM {table} WHERE NOT coalesce(warmup, false) GROUP BY rank")
    return {int(r["rank"]): int(r["n"]) for r in rows if r["rank"] is not None}
