"""`gpudoctor run`: start a training script under the doctor and report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from gpudoctor.cli.options import Common, common_options, emit
from gpudoctor.errors import GpudoctorError
from gpudoctor.rundir import RunDir

_DASHES = "gpudoctor.after_dashes"
_TORCHRUN = {
    "nnodes": "Hosts, N or MIN:MAX.", "node_rank": "This host's number (static rendezvous).", "rdzv_backend": "c10d, etcd-v2 or static.",
    "rdzv_endpoint": "HOST:PORT of the rendezvous.", "rdzv_id": "The job's name.", "rdzv_conf": "Further rendezvous settings, k=v,…",
    "max_restarts": "Restarts after a failure.", "monitor_interval": "Seconds between looks at the ranks.",
    "master_addr": "Host of rank 0 (static rendezvous).", "master_port": "Its port.", "local_addr": "This host's address.",
}


def _torchrun_options(function: Any) -> Any:
    for name, text in reversed(_TORCHRUN.items()):
        function = click.option(f"--{name.replace('_', '-')}", name, metavar="X", help=f"torchrun: {text}")(function)
    return click.option("--standalone", is_flag=True, help="torchrun: one host, own rendezvous.")(function)


class _Run(click.Command):
    """Remembers whether the command line stood after `--`, which the parser eats."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        rest = super().parse_args(ctx, args)
        words = len(ctx.params.get("command_line", ()))
        ctx.meta[_DASHES] = len(typed) > words and typed[-words - 1] == "--"
        return rest


@click.command(cls=_Run, context_settings={"allow_interspersed_args": False})
@click.option("--nproc-per-node", metavar="N", help="Ranks on this host.  [default: the GPUs, or 2 CPU ranks]")
@_torchrun_options
@click.option("-m", "--module", is_flag=True, help="SCRIPT is a module, as in `python -m`.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="The run folder.  [default: a new gpudoctor-runs/SCRIPT-DATE]")
@click.option("--lint/--no-lint", default=True, help="Check the script's source as well.")
@click.option("--capture", type=click.Choice(["auto", "nsys", "kineto", "probes"]), default="auto", show_default=True, help="What records the GPU's timeline.")
@click.option("--capture-steps", type=click.IntRange(1), default=10, show_default=True, help="Steps that Kineto records.")
@click.option("--sanitize", is_flag=True, help="Look for stream races inside the ranks; slower.")
@click.option("--overhead-budget", type=click.FloatRange(0.0001, 1.0), metavar="SHARE", help="Share of a step that probes may cost.  [default: 0.01 on GPUs, 0.02 on CPUs]")
@click.option("--nvtx/--no-nvtx", default=True, help="Push NVTX ranges.")
@click.option("--tensorboard/--no-tensorboard", default=True, help="Write TensorBoard event files.")
@click.option("--gradients/--no-gradients", default=True, help="Take gradient statistics.")
@click.option("--hang-timeout", type=click.FloatRange(0), default=300.0, show_default=True, metavar="SECONDS", help="End a run in which nothing has moved for so long; 0: never.")
@click.option("--with-harness", is_flag=True, help="Then let the built-in experiments show what this machine does; some minutes.")
@click.argument("command_line", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]… | -- LAUNCHER …")
@common_options
@click.pass_context
def command(ctx: click.Context, /, command_line: tuple[str, ...], common: Common, **options: Any) -> None:
    """Run a training script, unchanged, under the doctor and report.

    SCRIPT runs under torchrun's engine with one rank per GPU, or two CPU ranks. After `--` any other launcher may stand:
    the Python ranks that it starts are examined. The script's own failure is passed on as the exit code; with
    --with-harness an experiment that finds something wrong exits 1.
    """
    from gpudoctor.cli.run_report import report_on
    from gpudoctor.launch.plan import Plan, carry_out
    from gpudoctor.rulebook.load import load_rules

    torchrun = {k: options.pop(k) for k in (*_TORCHRUN, "standalone", "nproc_per_node")}
    lint, with_harness = options.pop("lint"), options.pop("with_harness")
    plan = Plan(command_line=command_line, other_launcher=ctx.meta[_DASHES], torchrun=torchrun, **options)
    config = common.config(next(iter(plan.sources()), Path.cwd()))
    book = load_rules(map(Path, config.rules), config.allow_python_rules, cases=False).choose(config.select, config.ignore)
    if plan.overhead_budget is None:
        plan = replace(plan, overhead_budget=config.overhead_budget)
    run, session = carry_out(plan, quiet_stdout=common.format != "terminal")
    sound = _experiments(run) if with_harness and not session.outcome.signal else True
    report = report_on(run, session, plan, lint, book, config)
    code = emit(report, common, config)
    click.echo(f"run folder: {run.root}", err=True)
    ctx.exit(session.exit_code or code or int(not sound))


def _experiments(run: RunDir) -> bool:
    """Run all experiments; False if one found something wrong. Whatever ends them early, the run's own report follows."""
    from gpudoctor.harness.run import run_experiments

    try:
        results = run_experiments(["all"], run, tell=lambda result: click.echo(f"gpudoctor: experiment {result.experiment} took {result.seconds:.0f} s", err=True))
    except (GpudoctorError, OSError) as error:
        click.echo(f"gpudoctor: no experiments: {error}", err=True)
        return True
    except KeyboardInterrupt:
        click.echo("gpudoctor: experiments interrupted", err=True)
        return True
    return not any(result.state in ("bad", "failed") for result in results)
