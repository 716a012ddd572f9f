"""The report of a finished run: its tables, its captures and the script's source."""

from __future__ import annotations

from contextlib import suppress
from io import StringIO
from pathlib import Path

import click

from gpudoctor.config import Config
from gpudoctor.errors import InputError, MissingExtraError
from gpudoctor.launch.session import Session
from gpudoctor.model import Report, Subject
from gpudoctor.report import html
from gpudoctor.report.as_json import render
from gpudoctor.report.build import build_report
from gpudoctor.rulebook.load import RuleBook
from gpudoctor.rulebook.rule import Kind
from gpudoctor.rundir import RunDir
from gpudoctor.source import load_project
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest
from gpudoctor.timeline.store import Store


def report_on(run: RunDir, session: Session, sources: tuple[Path, ...], book: RuleBook, config: Config, tensorboard: bool = False) -> Report:
    """Judge the run folder together with `sources`, and leave tables and findings in it."""
    read = _read(run, session)
    for problem in read.problems:
        click.echo(f"gpudoctor: {problem}", err=True)
    kinds: tuple[Kind, ...] = (*read.kinds, "machine") if "gpu" in read.store.captured else read.kinds
    report = build_report(Subject("run", [str(run.root)]), book, config, store=read.store, kinds=kinds, project=load_project(sources) if sources else None, charts=True)
    if read.notes:
        report.summary["notes"] = read.notes
    with suppress(OSError):
        read.store.write_parquet(run.tables)
        with open(run.findings, "w", encoding="utf-8") as file:
            render(report, file)
        _write_page(run, report)
    if tensorboard:
        _write_tensorboard(run, read.store)
    read.store.close()
    return report


def _write_page(run: RunDir, report: Report) -> None:
    """The HTML page, where its extra is installed."""
    text = StringIO()
    with suppress(MissingExtraError):
        html.render(report, text)
        run.html.write_text(text.getvalue(), "utf-8")


def _write_tensorboard(run: RunDir, store: Store) -> None:
    """Event files, where tensorboard is installed and the disk takes them; a note where not."""
    from gpudoctor.report.tensorboard import write_events

    try:
        write_events(store, run.tensorboard)
    except (MissingExtraError, OSError) as error:
        click.echo(f"gpudoctor: no TensorBoard files: {error}", err=True)


def _read(run: RunDir, session: Session) -> Ingested:
    """The folder's tables; how the ranks ended is added where the disk could not take it."""
    try:
        read = ingest([run.root], IngestOptions(cache=False))
    except InputError as error:
        read = Ingested(Store(), ("run",), "run", [], [str(error)])
    if not session.written:
        read.problems.append(f"{run.root}: could not be written to its end; what is missing there is still in this report")
        for table, row in session.rows:
            read.store.add_rows(table, [row])
    return read
