"""`gpudoctor lint`: static rules over Python and CUDA sources."""

from __future__ import annotations

from pathlib import Path

import click

from gpudoctor.cli.options import Common, common_options, emit
from gpudoctor.errors import InputError


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--exclude", multiple=True, metavar="PATTERN", help="Leave out files and folders that match.")
@click.option("--jobs", "-j", type=click.IntRange(min=1), help="Processes.  [default: one per CPU for many files]")
@click.option("--baseline", type=click.Path(path_type=Path, dir_okay=False), help="Report only findings that this file does not know.")
@click.option("--write-baseline", type=click.Path(path_type=Path, dir_okay=False), help="Write all findings to this file as known, and exit 0.")
@click.option("--fix", is_flag=True, help="Apply safe fixes, then report what is left.")
@click.option("--diff", is_flag=True, help="Print safe fixes as a diff instead of a report; exit 1 if there are any.")
@common_options
@click.pass_context
def command(ctx: click.Context, paths: tuple[Path, ...], exclude: tuple[str, ...], jobs: int | None, baseline: Path | None,
            write_baseline: Path | None, fix: bool, diff: bool, common: Common) -> None:
    """Check Python and CUDA sources, and notebooks, for faults of streams, DDP, memory and precision.

    A comment `# gpudoctor: ignore[rule] reason` on the line, or alone above it, silences a finding.
    """
    from gpudoctor.report.linted import lint_report
    from gpudoctor.rulebook.fix import fixes_for
    from gpudoctor.rulebook.known import read_known, write_known
    from gpudoctor.rulebook.lint import lint
    from gpudoctor.rulebook.load import load_rules

    config = common.config(paths[0])
    book = load_rules(map(Path, config.rules), config.allow_python_rules, cases=False).choose(config.select, config.ignore)
    known = read_known(baseline) if baseline is not None else None
    linted = lint(paths, book, config.params, (*config.exclude, *exclude), jobs)
    if linted.problems and not linted.files:
        raise InputError("; ".join(f"{p.path}: {p.reason}" for p in linted.problems[:3]))
    for problem in linted.problems:
        click.echo(f"{problem.path}: {problem.reason}", err=True)
    if not linted.files:
        click.echo("no Python or CUDA sources found", err=True)
    report = lint_report(list(paths), linted, config, known)
    if diff:
        changed = fixes_for(report.findings)
        click.echo("".join(f.diff() for f in changed), nl=False)
        ctx.exit(1 if changed else 0)
    if fix and (changed := fixes_for(report.findings)):
        for one in changed:
            one.write()
        click.echo(f"{sum(f.edits for f in changed)} fixes in {len(changed)} files", err=True)
        report = lint_report(list(paths), lint(paths, book, config.params, (*config.exclude, *exclude), jobs), config, known)
    if write_baseline is not None:
        click.echo(f"{write_known(write_baseline, report.findings)} known findings written to {write_baseline}", err=True)
        ctx.exit(0)
    ctx.exit(emit(report, common, config))
