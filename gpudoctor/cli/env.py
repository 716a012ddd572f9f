"""`gpudoctor env`: cards, links, driver, NCCL's environment, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import click

from gpudoctor.cli.options import Common, common_options, emit


@click.command()
@click.option("--copy/--no-copy", default=True, show_default=True, help="Copy between host and cards to read links under load and to test P2P (needs torch, about a second a card).")
@click.option("--record", type=click.Path(path_type=Path, dir_okay=False), help="Write the machine's answers to this file, for a bug report.")
@click.option("--replay", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Examine a recorded machine instead of this one.")
@common_options
@click.pass_context
def command(ctx: click.Context, copy: bool, record: Path | None, replay: Path | None, common: Common) -> None:
    """Examine cards, links, driver and NCCL's environment."""
    from gpudoctor.cli.env_report import environment_report
    from gpudoctor.machine.examine import examine
    from gpudoctor.machine.live import LiveMachine
    from gpudoctor.machine.seam import Machine, RecordedMachine, Recorder

    machine: Machine = RecordedMachine.load(replay) if replay else LiveMachine(copy)
    if record:
        machine = Recorder(machine)
    config = common.config(Path.cwd())
    examined = examine(machine)
    if isinstance(machine, Recorder) and record:
        machine.save(record)
        click.echo(f"machine recorded in {record}", err=True)
    report = environment_report(examined, config)
    if common.format == "terminal" and common.output is None:
        from rich.console import Console

        from gpudoctor.machine.tree import tree_of

        Console(highlight=False).print(tree_of(examined))
    ctx.exit(emit(report, common, config))
