"""The harness's results in a report: a table and a verdict of each experiment, and its plots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gpudoctor import units
from gpudoctor.harness.result import Result
from gpudoctor.model import Report
from gpudoctor.report.plain import one_line

STYLE = {"ok": "green", "bad": "bold red", "failed": "bold red", "cannot": "yellow"}


def join(report: Report, results: Iterable[Result]) -> None:
    """Add the results to the report's summary, and their plots to its charts."""
    results = list(results)
    if results:
        report.summary["harness"] = [_facts(r) for r in results]
    report.plots |= {f"harness:{r.experiment}{f' {n + 1}' if n else ''}": plot.rows() for r in results for n, plot in enumerate(r.plots)}


def table_cells(result: dict[str, Any]) -> Iterator[list[str]]:
    """The rows of one result as words, each value in its column's unit."""
    for row in result["rows"]:
        yield [_cell(value, column["unit"]) for value, column in zip(row, result["columns"], strict=True)]


def parts(result: Result) -> Iterator[RenderableType]:
    """`terminal_parts` of a result that is not in a report yet."""
    return terminal_parts(_facts(result))


def terminal_parts(result: dict[str, Any]) -> Iterator[RenderableType]:
    """One result for a terminal: its table, its verdict, and what the numbers cannot show."""
    if result["rows"]:
        table = Table(title=Text(one_line(result["title"])), title_justify="left")
        for column in result["columns"]:
            table.add_column(Text(one_line(column["name"])), justify="right" if column["unit"] else "left")
        for cells in table_cells(result):
            table.add_row(*(Text(one_line(cell)) for cell in cells))
        yield table
    else:
        yield Text(one_line(result["title"]), style="italic")
    yield Text(one_line(f"{result['experiment']}: {result['verdict']}", 2000), style=STYLE.get(result["state"], ""))
    for limit in result["limits"]:
        yield Text(f"  note: {one_line(limit, 2000)}", style="dim")


def tally(results: list[dict[str, Any]]) -> str:
    """How many experiments ended how, in words."""
    states = [r["state"] for r in results]
    return f"{len(states)} experiment{'s' if len(states) > 1 else ''}: " + ", ".join(f"{states.count(s)} {s}" for s in STYLE if s in states)


def _facts(result: Result) -> dict[str, Any]:
    return {k: v for k, v in asdict(result).items() if k != "plots"}


def _cell(value: object, unit: str) -> str:
    if isinstance(value, str) or value is None:
        return value or ""
    if unit == "s" and isinstance(value, float):
        return units.duration(value * 1e9)
    show = {"B": units.size, "B/s": units.rate, "%": units.share, "n": units.number}.get(unit)
    if show and isinstance(value, (int, float)):
        return show(value)
    return f"{value:.6g}" if isinstance(value, float) else str(value)
