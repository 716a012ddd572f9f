"""`gpudoctor harness`: the built-in training experiments."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from gpudoctor.harness.result import SCHEMA, Result
from gpudoctor.harness.run import EXPERIMENTS, run_experiments
from gpudoctor.model import Report, Subject
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
    from gpudoctor.report.experiments import join
    from gpudoctor.report.kept import keep

    run = RunDir.create(out) if out else RunDir.fresh(Path("gpudoctor-runs"), "harness")
    run.update_info(kind="harness", argv=["harness", *experiments])
    results = run_experiments(experiments, run, ranks or 0, steps, seed, cpu, timeout, _print if format_ == "terminal" else lambda result: None)
    if format_ == "json":
        click.echo(json.dumps({"schema": SCHEMA, "results": [asdict(result) for result in results]}, indent=1))
    report = Report(Subject("run", ["gpudoctor harness " + " ".join(experiments)]))
    join(report, results)
    keep(run, report)
    click.echo(f"results written to {run.capture}, the report beside it; `gpudoctor report {run.root}` shows it again", err=True)
    ctx.exit(1 if any(result.state in ("bad", "failed") for result in results) else 0)


def _print(result: Result) -> None:
    from rich.console import Console
    from rich.text import Text

    from gpudoctor.report.experiments import parts

    console = Console(highlight=False)
    console.print()
    for part in parts(result):
        console.print(part, soft_wrap=isinstance(part, Text))
