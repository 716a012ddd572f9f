"""`gpudoctor rules`: list, explain, test, new."""

from __future__ import annotations

from pathlib import Path

import click

from gpudoctor.rulebook.load import RuleBook, load_rules

_FOLDERS = click.option("--rules", "folders", multiple=True, type=click.Path(path_type=Path), help="A folder of further rules.")
_PYTHON = click.option("--allow-python-rules", is_flag=True, help="Load Python detectors of further rules.")


@click.group()
def command() -> None:
    """List, explain, test and make rules."""


@command.command("list")
@_FOLDERS
@_PYTHON
def list_(folders: tuple[Path, ...], allow_python_rules: bool) -> None:
    """All rules, one a line: id, slug, severity, what sees it, summary."""
    for rule in load_rules(folders, allow_python_rules):
        kinds = ",".join(dict.fromkeys(d.kind for d in rule.detectors))
        click.echo(f"{rule.id}  {rule.slug:32} {rule.severity.name:8} {kinds:24} {rule.summary}")


@command.command()
@click.argument("name")
@_FOLDERS
@_PYTHON
def explain(name: str, folders: tuple[Path, ...], allow_python_rules: bool) -> None:
    """One rule's page: what it does, why it is bad, example, use instead."""
    from rich.console import Console
    from rich.markdown import Markdown

    from gpudoctor.rulebook.docs import page

    text = page(load_rules(folders, allow_python_rules).find(name))
    console = Console()
    if console.is_terminal:
        console.print(Markdown(text))
    else:
        click.echo(text, nl=False)


@command.command()
@click.argument("names", nargs=-1)
@_FOLDERS
@_PYTHON
@click.pass_context
def test(ctx: click.Context, names: tuple[str, ...], folders: tuple[Path, ...], allow_python_rules: bool) -> None:
    """Run the cases inside the rules."""
    from gpudoctor.rulebook.cases import run_cases

    book: RuleBook = load_rules(folders, allow_python_rules)
    results = list(run_cases(book.choose(names)))
    for result in results:
        if result.problem:
            click.echo(f"FAILED {result.rule} {result.case}: {result.problem}")
    bad = sum(bool(r.problem) for r in results)
    click.echo(f"{len(results) - bad} cases passed, {bad} failed")
    ctx.exit(1 if bad else 0)


@command.command()
@click.argument("rule_id")
@click.argument("slug")
@click.option("--into", type=click.Path(path_type=Path), default=Path("rules"), show_default=True, help="The folder of rules.")
def new(rule_id: str, slug: str, into: Path) -> None:
    """Make the files of a new rule, with cases that pass."""
    from gpudoctor.rulebook.scaffold import new_rule

    for path in new_rule(into, rule_id, slug):
        click.echo(path)
