"""`gpudoctor lint`: static rules over Python and CUDA sources."""

from __future__ import annotations

from pathlib import Path

import click

from gpudoctor.cli.options import Common, common_options, emit


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@common_options
@click.pass_context
def command(ctx: click.Context, paths: tuple[Path, ...], common: Common) -> None:
    """Check Python and CUDA sources for faults of streams, DDP, memory and precision."""
    from gpudoctor.model import Subject
    from gpudoctor.report.build import build_report
    from gpudoctor.rulebook.load import load_rules
    from gpudoctor.source import load_project

    config = common.config(paths[0])
    book = load_rules(map(Path, config.rules), config.allow_python_rules).choose(config.select, config.ignore)
    report = build_report(Subject("source", [str(p) for p in paths]), book, config, project=load_project(paths))
    ctx.exit(emit(report, common, config))
