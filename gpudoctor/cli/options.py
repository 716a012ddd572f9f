"""Options that commands share, and how a finished report leaves the process."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from gpudoctor.config import Config, load_config
from gpudoctor.model import Report, Severity
from gpudoctor.report.formats import FORMATS, render
from gpudoctor.rundir import write_atomic


@dataclass(frozen=True, slots=True)
class Common:
    """The shared options as given."""

    format: str
    output: Path | None
    fail_on: Severity | None
    require: tuple[str, ...]
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    rules: tuple[Path, ...]
    allow_python_rules: bool

    def config(self, start: Path) -> Config:
        """The configuration above `start`, with these options laid over it."""
        config = load_config(start)
        return replace(
            config,
            fail_on=config.fail_on if self.fail_on is None else self.fail_on,
            select=self.select or config.select,
            ignore=self.ignore or config.ignore,
            rules=(*(str(config.root / r) for r in config.rules), *map(str, self.rules)),
            allow_python_rules=self.allow_python_rules or config.allow_python_rules,
        )


def common_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options; the command receives them as `common`."""

    @click.option("--format", "format_", type=click.Choice(list(FORMATS)), default="terminal", show_default=True, help="How to print the report.")
    @click.option("--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write the report to this file.")
    @click.option("--fail-on", type=click.Choice(list(Severity.__members__)), help="Exit 1 at findings of this severity or above.  [default: error]")
    @click.option("--require", multiple=True, metavar="RULE", help="Exit 3 if this rule could not answer.")
    @click.option("--select", multiple=True, metavar="RULE", help="Run only these rules (id, slug or prefix such as GD1).")
    @click.option("--ignore", multiple=True, metavar="RULE", help="Leave these rules out.")
    @click.option("--rules", "rules", multiple=True, type=click.Path(path_type=Path), help="A folder of further rules.")
    @click.option("--allow-python-rules", is_flag=True, help="Run Python detectors of further rules.")
    @click.option("--debug", is_flag=True, hidden=True, expose_value=False)
    @functools.wraps(function)
    def wrapped(*args: Any, format_: str, output: Path | None, fail_on: str | None, require: tuple[str, ...], select: tuple[str, ...],
                ignore: tuple[str, ...], rules: tuple[Path, ...], allow_python_rules: bool, **kwargs: Any) -> Any:
        common = Common(format_, output, Severity[fail_on] if fail_on else None, require, select, ignore, rules, allow_python_rules)
        return function(*args, common=common, **kwargs)

    return wrapped


def emit(report: Report, common: Common, config: Config) -> int:
    """Print the report, or write it to `--output` and say where; return the exit code."""
    if common.output is None:
        render(report, common.format, sys.stdout)
    else:
        text = io.StringIO()
        render(report, common.format, text)
        common.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(common.output, text.getvalue())
        click.echo(f"report written to {common.output}", err=True)
    return report.exit_code(config.fail_on, common.require)
