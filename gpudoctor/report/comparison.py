"""Two subjects side by side: which sections apply, and how they are shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table

from gpudoctor.report.plain import one_line
from gpudoctor.timeline.compare import Change, compare_time
from gpudoctor.timeline.compare_gradients import gradient_changes
from gpudoctor.timeline.memory_compare import compare_memory
from gpudoctor.timeline.store import Store
from gpudoctor.units import duration, number, size

_STYLE = {"worse": "bold red", "better": "green", "same": "dim"}
_UNITS: dict[str, Callable[[float], str]] = {"ns": duration, "B": size, "n": number}


def _memory(a: Store, b: Store) -> list[Change]:
    return [Change(m.what, "B", m.before, m.after, None, None) for m in compare_memory(a, b)]


SECTIONS: dict[str, Callable[[Store, Store], list[Change]]] = {"per step": compare_time, "gradients": gradient_changes, "memory snapshots": _memory}
"""Title → what compares two stores; a section that does not apply to them is empty."""


def compare(a: Store, b: Store) -> dict[str, list[Change]]:
    """Every section that applies. Raises InconclusiveError if the two cannot be compared."""
    sections = {title: section(a, b) for title, section in SECTIONS.items()}
    return {title: changes for title, changes in sections.items() if changes}


def data(sections: dict[str, list[Change]]) -> dict[str, Any]:
    """Plain values for JSON: the section's rows with their verdicts."""
    return {title: [asdict(c) | {"share": c.share, "verdict": c.verdict} for c in changes] for title, changes in sections.items()}


def render(sections: dict[str, list[Change]], names: tuple[str, str], stream: TextIO) -> None:
    """Write one table a section; a change within noise is dim."""
    console = Console(file=stream, highlight=False, emoji=False)
    console.print(f"[bold]A[/] {_escaped(names[0])}\n[bold]B[/] {_escaped(names[1])}")
    for title, changes in sections.items():
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("", "A", "B", "change", "95 % band", ""):
            table.add_column(column, justify="left" if column == "" else "right", no_wrap=bool(table.columns))
        for change in changes:
            table.add_row(*_cells(change), style=_STYLE[change.verdict])
        console.print(table)


def _cells(change: Change) -> tuple[str, ...]:
    text = _UNITS[change.unit]
    part = "new" if change.share is None and change.after else "" if change.share is None else f"{change.share * 100:+.1f} %"
    band = "" if change.low is None or change.high is None else f"{_signed(change.low, text)} … {_signed(change.high, text)}"
    return _escaped(change.what), text(change.before), text(change.after), part, band, "" if change.verdict == "same" else change.verdict


def _signed(value: float, text: Callable[[float], str]) -> str:
    return ("-" if value < 0 else "+") + text(abs(value))


def _escaped(text: str) -> str:
    return one_line(text).replace("[", "\\[")
