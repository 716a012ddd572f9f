"""`gpudoctor report`: render a kept report again."""

from __future__ import annotations

from pathlib import Path

import click

from gpudoctor.cli.options import Common, common_options, emit


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@common_options
@click.pass_context
def command(ctx: click.Context, run: Path, common: Common) -> None:
    """Render RUN, a run folder or a report in JSON, in another format."""
    from gpudoctor.report.kept import load_kept

    report = load_kept(run, charts=common.format == "html")
    ctx.exit(emit(report, common, common.config(run)))
