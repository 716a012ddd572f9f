"""Print the reference pages from the code: rules, commands, tables, the report's schema. `python docs/build.py` writes them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from importlib import import_module, resources
from pathlib import Path

import click

from gpudoctor.cli import COMMANDS, cli
from gpudoctor.rulebook.docs import page
from gpudoctor.rulebook.load import load_rules
from gpudoctor.tables import TABLES

DOCS = Path(__file__).parent
_BLOCKS = {
    "1": "Streams", "2": "Memory", "3": "Replicas and gradients", "4": "Mixed precision", "5": "Communication and the machine", "6": "Throughput", "9": "The evidence itself",
}


def pages() -> Iterator[tuple[str, str]]:
    """Yield (path below docs, text) of every printed page."""
    rules = load_rules()
    for rule in rules:
        yield f"rules/{rule.id}.md", page(rule)
    yield "rules.md", _rule_index(rules)
    yield "commands.md", _commands()
    yield "tables.md", _tables()
    yield "schema.md", _schema()


def _rule_index(rules: object) -> str:
    parts = ["# Rules", "Printed from the rules themselves; `gpudoctor rules explain NAME` shows a page in the terminal."]
    block = ""
    for rule in rules:  # type: ignore[attr-defined]
        if rule.id[2] != block:
            block = rule.id[2]
            parts.append(f"\n## GD{block}xx {_BLOCKS.get(block, '')}\n\n| rule | severity | seen in | what it sees |\n|---|---|---|---|")
        kinds = ", ".join(dict.fromkeys(d.kind for d in rule.detectors))
        parts[-1] += f"\n| [{rule.id} {rule.slug}](rules/{rule.id}.md) | {rule.severity.name} | {kinds} | {rule.summary.replace('|', '/')} |"
    return "\n\n".join(parts) + "\n"


def _commands() -> str:
    parts = ["# Commands", "What `--help` prints.", _help(cli, "gpudoctor")]
    for name in COMMANDS:
        command = import_module(f"gpudoctor.cli.{name}").command
        parts += [f"## gpudoctor {name}", _help(command, f"gpudoctor {name}")]
        if isinstance(command, click.Group):
            for sub, child in command.commands.items():
                parts += [f"### gpudoctor {name} {sub}", _help(child, f"gpudoctor {name} {sub}")]
    return "\n\n".join(parts) + "\n"


def _help(command: click.Command, name: str) -> str:
    fresh = copy(command)
    fresh._help_option = None  # click keeps the first it made, named as whoever asked first wanted it
    context = click.Context(fresh, info_name=name, max_content_width=100, terminal_width=100, help_option_names=cli.context_settings["help_option_names"])
    return f"```text\n{fresh.get_help(context)}\n```"


def _tables() -> str:
    parts = ["# Tables", "The contract between recorders, ingest and rules. Times are int64 ns on one clock per capture; joins are on `(rank, corr)`."]
    for table in TABLES.values():
        rows = "\n".join(
            f"| `{c.name}` | {c.type} | {c.unit} | {(c.doc + (': ' + ', '.join(c.choices) if c.choices else '')).replace('|', '&#124;')} |" for c in table.columns
        )
        parts += [f"## {table.name}", table.doc, f"| column | type | unit | meaning |\n|---|---|---|---|\n{rows}"]
    return "\n\n".join(parts) + "\n"


def _schema() -> str:
    text = (resources.files("gpudoctor.report") / "report.schema.json").read_text("utf-8").strip()
    return f"# The report as JSON\n\nEvery command prints this document with `--format json`, and nothing else to standard output.\n\n```json\n{text}\n```\n"


def stale() -> list[Path]:
    """Pages of rules that are no more."""
    kept = {name for name, _ in pages()}
    return [p for p in (DOCS / "rules").glob("*.md") if f"rules/{p.name}" not in kept]


def main() -> None:
    """Write every page and remove stale ones."""
    for name, text in pages():
        (DOCS / name).parent.mkdir(exist_ok=True)
        (DOCS / name).write_text(text, "utf-8")
    for path in stale():
        path.unlink()


if __name__ == "__main__":
    main()
