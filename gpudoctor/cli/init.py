"""`gpudoctor init`: configuration, pre-commit entry and workflows for a project."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option("--script", default="train.py", show_default=True, help="The training script that the gate runs.")
@click.option("--branch", default="main", show_default=True, help="The branch that merges go into.")
@click.option("--ci", "platforms", multiple=True, type=click.Choice(["github", "gitlab"]), help="Workflows to write.  [default: both]")
@click.option("--debug", is_flag=True, hidden=True, expose_value=False)
def command(script: str, branch: str, platforms: tuple[str, ...]) -> None:
    """Write what this project needs to keep gpudoctor before its merges; nothing that is there is overwritten."""
    from gpudoctor.gate.setup import set_up

    for written in set_up(Path.cwd(), script, branch, platforms or ("github", "gitlab")):
        click.echo(f"{written.path.relative_to(Path.cwd())}: {written.what}")
