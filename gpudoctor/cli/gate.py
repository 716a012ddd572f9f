"""`gpudoctor gate`: stop a merge that makes training wrong, slower or hungrier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from gpudoctor.cli.options import Common, common_options, emit
from gpudoctor.errors import UsageError


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--against", metavar="REVISION", help="Compare with the merge base of this git revision, run here in turn with the working tree.")
@click.option("--baseline", metavar="NAME", help="The kept baseline to compare with.  [default: gate.baseline, or main]")
@click.option("--repeats", type=click.IntRange(3), help="Runs of each side.  [default: gate.repeats, or 5]")
@click.option("--nproc-per-node", "ranks", type=click.IntRange(1), help="Ranks.  [default: gate.ranks, the GPUs, or 2]")
@click.option("--accept", is_flag=True, help="Keep what is measured as the baseline and accept its findings.")
@click.option("--reason", help="Why it is accepted; goes into the baseline.")
@click.argument("command_line", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT [ARGS]…]")
@common_options
@click.pass_context
def command(
    ctx: click.Context, command_line: tuple[str, ...], against: str | None, baseline: str | None, repeats: int | None, ranks: int | None,
    accept: bool, reason: str | None, common: Common,
) -> None:
    """Measure SCRIPT (default: gate.script of the configuration) and hold it against a base and a budget.

    Exit 0: not worse. 1: a new finding, a slowdown beyond noise or a broken budget. 3: cannot be compared.
    """
    from gpudoctor.gate.baseline import Baseline, load_baseline, save_baseline
    from gpudoctor.gate.budget import read_budget
    from gpudoctor.gate.gate import gate_against_baseline, gate_against_revision
    from gpudoctor.gate.machine import fingerprint, machine_facts

    root = Path.cwd()
    config = common.config(root)
    budget = read_budget(config.gate)
    budget = replace(
        budget, script=command_line[0] if command_line else budget.script, args=command_line[1:] if command_line else budget.args,
        repeats=repeats or budget.repeats, ranks=ranks or budget.ranks, fail_on=common.fail_on if common.fail_on is not None else budget.fail_on,
    )
    if not budget.script:
        raise UsageError("gate needs a script: give it, or set script in [tool.gpudoctor.gate]")
    if accept and not (reason or "").strip():
        raise UsageError("--accept needs --reason TEXT, for those who read the baseline later")
    name, machine = baseline or budget.baseline, fingerprint(machine_facts())
    kept = load_baseline(name, config.root)

    def tell(text: str) -> None:
        click.echo(text, err=True)

    verdict = gate_against_revision(against, budget, kept, root, tell) if against else gate_against_baseline(kept, budget, machine, root, tell)
    emit(verdict.report, common, config)
    if accept:
        fresh = kept or Baseline(name)
        fresh.accept(verdict.report.findings, str(reason), verdict.base_revision)
        fresh.runs, fresh.machine, fresh.revision = verdict.head.runs, machine, _revision(root)
        fresh.findings = [f.fingerprint for f in verdict.head.findings]
        click.echo(f"accepted; kept in {save_baseline(fresh, config.root)}, commit it", err=True)
        ctx.exit(0)
    ctx.exit(1 if verdict.fails else 3 if verdict.inconclusive else 0)


def _revision(root: Path) -> str:
    from gpudoctor.gate.changes import git

    try:
        return git("rev-parse", "HEAD", cwd=root).strip()
    except UsageError:
        return ""
