"""`gpudoctor analyze`: read captures, run folders, snapshots and logs, and report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpudoctor.cli.options import Common, common_options, emit

if TYPE_CHECKING:
    from gpudoctor.model import Report
    from gpudoctor.timeline.store import Store


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@common_options
@click.option("--memory-limit", metavar="SIZE", help="Most memory for tables, e.g. 4GB; what does not fit spills to disk.")
@click.option("--no-cache", is_flag=True, help="Neither use nor write the cache beside the captures.")
@click.option("--dask", metavar="ADDRESS", help="Read many files on this Dask cluster.")
@click.option("--source", "sources", multiple=True, type=click.Path(path_type=Path), help="Also check these sources, and join what they say to what was measured.")
@click.option("--export", "export", type=click.Choice(["perfetto"]), help="Also write the timeline, with the findings as tracks, as NAME.perfetto.json.")
@click.pass_context
def command(ctx: click.Context, paths: tuple[Path, ...], common: Common, memory_limit: str | None, no_cache: bool, dask: str | None,
            sources: tuple[Path, ...], export: str | None) -> None:
    """Find what is wrong or slow in captures, run folders, memory snapshots, flight-recorder dumps and NCCL logs."""
    from gpudoctor.cli.progress import progress
    from gpudoctor.rulebook.load import load_rules
    from gpudoctor.timeline.ingest import IngestOptions, ingest

    config = common.config(paths[0])
    book = load_rules(map(Path, config.rules), config.allow_python_rules, cases=False).choose(config.select, config.ignore)
    with progress("reading captures") as bar:
        read = ingest(paths, IngestOptions(memory_limit=memory_limit, cache=not no_cache, dask=dask, progress=bar.update, debug="--debug" in sys.argv))
        from gpudoctor.model import Subject  # late: the workers of `ingest` are under way all the sooner
        from gpudoctor.report.build import build_report
        from gpudoctor.source import load_project

        project = load_project(sources) if sources else None
        report = build_report(Subject(read.subject_kind, [str(p) for p in paths]), book, config, store=read.store, kinds=read.kinds, project=project, charts=common.format == "html")
    if read.notes:
        report.summary["notes"] = read.notes
    if read.kinds == ("trace",) and "gpu_op" not in read.store.captured:
        report.summary["inconclusive"] = True
    if export:
        _export(report, read.store, Path(f"{_plain_name(paths[0])}.perfetto.json"))
    code = emit(report, common, config)
    read.store.close()
    for problem in read.problems:
        click.echo(f"gpudoctor: {problem}", err=True)
    ctx.exit(2 if read.problems else code)


def _export(report: Report, store: Store, path: Path) -> None:
    from gpudoctor.report.perfetto import render

    with path.open("w", encoding="utf-8") as stream:
        render(report, store, stream)
    click.echo(f"timeline written to {path}; open it at ui.perfetto.dev", err=True)


def _plain_name(path: Path) -> str:
    name = path.resolve().name
    for suffix in (".gz", ".json", ".sqlite", ".nsys-rep", ".qdrep"):
        name = name.removesuffix(suffix)
    return name
