"""The command line. Commands are imported when called, so that `--help` stays fast."""

from __future__ import annotations

import sys
from importlib import import_module

import click

from gpudoctor import __version__
from gpudoctor.errors import GpudoctorError

COMMANDS = {
    "run": "Run a training script under the doctor and report.",
    "analyze": "Read captures, run folders, snapshots and logs, and report.",
    "lint": "Check Python and CUDA sources.",
    "compare": "Compare two runs or captures.",
    "gate": "Stop a merge that makes training wrong, slower or hungrier.",
    "init": "Write configuration, a pre-commit entry and CI workflows.",
    "harness": "Run the built-in training experiments.",
    "env": "Examine cards, links, driver and NCCL's environment.",
    "plan": "Say which parallel strategy fits the cards.",
    "rules": "List, explain, test and make rules.",
    "report": "Render a report again in another format.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = import_module(f"gpudoctor.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gpudoctor")
@click.option("--debug", is_flag=True, help="Show a traceback instead of the one-line error.")
def cli(debug: bool) -> None:
    """A doctor for PyTorch data-parallel training on two GPUs and more."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit; the one place that catches our errors."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        sys.exit(cli.main(arguments, prog_name="gpudoctor", standalone_mode=False) or 0)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except GpudoctorError as error:
        if "--debug" in arguments:
            raise
        click.echo(f"gpudoctor: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
