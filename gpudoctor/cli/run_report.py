"""The report of a finished run: its tables, its captures and the script's source."""

from __future__ import annotations

import shlex
from contextlib import suppress

import click

from gpudoctor.config import Config
from gpudoctor.errors import InputError, MissingExtraError
from gpudoctor.harness.run import read_results
from gpudoctor.launch.plan import Plan
from gpudoctor.launch.session import Session
from gpudoctor.model import Report, Subject
from gpudoctor.report import experiments
from gpudoctor.report.build import build_report
from gpudoctor.report.kept import keep
from gpudoctor.rulebook.load import RuleBook
from gpudoctor.rulebook.rule import Kind
from gpudoctor.rundir import RunDir
from gpudoctor.source import load_project
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest
from gpudoctor.timeline.store import Store


def report_on(run: RunDir, session: Session, plan: Plan, lint: bool, book: RuleBook, config: Config) -> Report:
    """Judge the run folder, with `lint` together with the script's source, and leave tables and findings in it."""
    read = _read(run, session)
    for problem in read.problems:
        click.echo(f"gpudoctor: {problem}", err=True)
    kinds: tuple[Kind, ...] = (*read.kinds, "machine") if "gpu" in read.store.captured else read.kinds
    sources = plan.sources() if lint else ()
    report = build_report(Subject("run", [shlex.join(plan.command_line)]), book, config, store=read.store, kinds=kinds, project=load_project(sources) if sources else None, charts=True)
    if read.notes:
        report.summary["notes"] = read.notes
    experiments.join(report, read_results(run))
    with suppress(OSError):
        read.store.write_parquet(run.tables)
        keep(run, report)
    if plan.tensorboard:
        _write_tensorboard(run, read.store)
    read.store.close()
    return report


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
        derive(read.store)
    if not session.written:
        read.problems.append(f"{run.root}: could not be written to its end; what is missing there is still in this report")
        for table, row in session.rows:
            read.store.add_rows(table, [row])
    return read
