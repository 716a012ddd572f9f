"""`gpudoctor harness`: the built-in training experiments."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from gpudoctor.harness.result import SCHEMA, Result
from gpudoctor.harness.run import EXPERIMENTS, run_experiments
from gpudoctor.rundir import RunDir


@click.command()
@click.argument("experiments", nargs=-1, required=True, metavar="EXPERIMENT...", type=click.Choice([*EXPERIMENTS, "all"]))
@click.option("--ranks", type=click.IntRange(1), default=None, help="Processes to train with.  [default: one a GPU, two at least]")
@click.option("--steps", type=click.IntRange(6), default=20, show_default=True, help="Training steps of drift, amp and recovery.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of text and weights.")
@click.option("--cpu", is_flag=True, help="Leave GPUs alone.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Run folder.  [default: gpudoctor-runs/harness-DATE-TIME]")
@click.option("--timeout", type=click.FloatRange(10), default=240.0, show_default=True, help="Seconds that one experiment may take.")
@click.option("--format", "format_", type=click.Choice(["terminal", "json"]), default="terminal", show_default=True, help="How to print the results.")
@click.option("--debug", is_flag=True, hidden=True, expose_value=False)
@click.pass_context
def command(ctx: click.Context, experiments: tuple[str, ...], ranks: int | None, steps: int, seed: int, cpu: bool, out: Path | None, timeout: float, format_: str) -> None:
    """Train a small transformer in several ways and show what this machine does.

    \b
    drift        every strategy's loss against one card's
    aggregate    adding gradients: our kernel, PyTorch, an all-reduce
    bandwidth    what the links carry and what a step asks of them
    launch       eager against CUDA graph, by batch size
    amp          the loss scale from 65536 through an overflow
    preallocate  a real reservation of memory, and what it changes
    scale        throughput on 1 to N ranks
    recovery     a rank is killed; the run goes on from its checkpoint
    all          all of these

    Exits 1 if an experiment finds something wrong or fails; one that this machine cannot run says why and counts as done.
    """
    run = RunDir.create(out) if out else RunDir.fresh(Path("gpudoctor-runs"), "harness")
    run.update_info(kind="harness", argv=["harness", *experiments])
    results = run_experiments(experiments, run, ranks or 0, steps, seed, cpu, timeout, _print if format_ == "terminal" else lambda result: None)
    if format_ == "json":
        click.echo(json.dumps({"schema": SCHEMA, "results": [asdict(result) for result in results]}, indent=1))
    click.echo(f"results written to {run.capture}", err=True)
    ctx.exit(1 if any(result.state in ("bad", "failed") for result in results) else 0)


def _print(result: Result) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print()
    if result.rows:
        table = Table(title=Text(result.title), title_justify="left")
        for column in result.columns:
            table.add_column(Text(column.name), justify="right" if column.unit else "left")
        for row in result.rows:
            table.add_row(*(Text(_cell(value, column.unit)) for value, column in zip(row, result.columns, strict=True)))
        console.print(table)
    else:
        console.print(Text(result.title, style="italic"))
    mark = {"ok": "green", "bad": "bold red", "failed": "bold red", "cannot": "yellow"}[result.state]
    console.print(Text(f"{result.experiment}: {result.verdict}", style=mark), soft_wrap=True)
    for limit in result.limits:
        console.print(Text(f"  note: {limit}", style="dim"), soft_wrap=True)


def _cell(value: object, unit: str) -> str:
    from gpudoctor import units

    if isinstance(value, str) or value is None:
        return value or ""
    if unit == "s" and isinstance(value, float):
        return units.duration(value * 1e9)
    show = {"B": units.size, "B/s": units.rate, "%": units.share, "n": units.number}.get(unit)
    if show and isinstance(value, (int, float)):
        return show(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
