"""The report for a terminal: verdict first, findings by rank, what was measured, what was abstained."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule as Line
from rich.text import Text

from gpudoctor.model import Abstention, Finding, Report, Severity
from gpudoctor.report import experiments
from gpudoctor.report.excerpt import excerpt
from gpudoctor.report.plain import one_line, plain
from gpudoctor.report.tables import fact_tables
from gpudoctor.units import duration

_PLAIN = str.maketrans({"µ": "u", "–": "-", "─": "-", "·": "-", "❱": ">", "…": "~", "‖": "|", "²": "2"})
STYLE = {Severity.error: "bold red", Severity.warning: "bold yellow", Severity.perf: "bold magenta", Severity.note: "cyan"}


def render(report: Report, stream: TextIO, width: int | None = None) -> None:
    """Write the report to `stream`; colour only where it is a terminal, blocks only where it can encode them."""
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
    if encoding.startswith("utf"):
        _write(report, Console(file=stream, highlight=False, width=width, emoji=False), ascii_only=False)
        return
    text = io.StringIO()
    _write(report, Console(file=text, highlight=False, width=width, emoji=False), ascii_only=True)
    stream.write(text.getvalue().translate(_PLAIN).encode(encoding, "replace").decode(encoding))


def _write(report: Report, console: Console, ascii_only: bool) -> None:
    console.print(_verdict(report))
    for note in report.summary.get("notes", []):
        console.print(Text(f"  {one_line(note)}", style="dim"))
    for finding in report.findings:
        console.print()
        console.print(_block(finding, ascii_only))
    for table in fact_tables(report.summary, console.width, ascii_only):
        console.print()
        console.print(table)
    for result in report.summary.get("harness", []):
        console.print()
        for part in experiments.terminal_parts(result):
            console.print(part, soft_wrap=isinstance(part, Text))
    if report.abstained:
        console.print()
        console.print(_abstained(report.abstained))
    console.print(_footer(report))


def _verdict(report: Report) -> RenderableType:
    subject = one_line(", ".join(report.subject.paths) or report.subject.kind)
    if report.findings:
        head = Text.assemble((report.tally, STYLE[max(f.severity for f in report.findings)]), "  ", (subject, "dim"))
    elif report.verdict == "inconclusive":
        head = Text.assemble(("inconclusive: the evidence cannot answer", "bold yellow"), "  ", (subject, "dim"))
    else:
        head = Text.assemble(("no findings", "bold green"), "  ", (subject, "dim"))
    if results := report.summary.get("harness"):
        head.append(f"  {experiments.tally(results)}", "bold red" if any(r["state"] in ("bad", "failed") for r in results) else "")
    return Group(Line(title="gpudoctor", style="dim", align="left", characters="─"), head)


def _block(f: Finding, ascii_only: bool) -> RenderableType:
    place = f"{plain(f.location.path)}:{f.location.line}" if f.location else ""
    head = Text.assemble((f.severity.name, STYLE[f.severity]), f" {f.rule} ", (f.name, "bold"), *((f"  {place}", "underline"),) * bool(place))
    details = [d for d in (_cost(f), _many("rank", f.ranks), _many("GPU", f.devices), _many("stream", [s if s >= 0 else "default" for s in f.streams]), f"seen {f.count} times" if f.count > 1 else "", f.confidence.name) if d]
    dot = " - " if ascii_only else " · "
    parts: list[RenderableType] = [head, Text(dot.join(details), style="dim"), Text(plain(f.message))]
    if f.location and (lines := excerpt(f.location)):
        parts.append(lines)
    parts.append(Text.assemble(("cure: ", "bold green"), plain(f.fix)))
    return Group(parts[0], Padding(Group(*parts[1:]), (0, 0, 0, 2), expand=False))


def _cost(f: Finding) -> str:
    if not f.cost_ns:
        return ""
    return f"costs {duration(f.cost_ns)} a step" if f.values.get("cost_per") == "step" else f"costs {duration(f.cost_ns)} in all"


def _many(noun: str, numbers: Sequence[int | str]) -> str:
    if not numbers:
        return ""
    shown = ", ".join(map(str, numbers[:8])) + (", …" if len(numbers) > 8 else "")
    return f"{noun}{'s' if len(numbers) > 1 else ''} {shown}"


def _abstained(items: list[Abstention]) -> RenderableType:
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for item in items:
        groups[item.reason, item.needs].append(item.name)
    lines: list[RenderableType] = [Text("could not be judged", style="bold")]
    for (reason, needs), names in groups.items():
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        lines.append(Padding(Text.assemble(shown, (f": {plain(reason)}; would help: {plain(needs)}", "dim")), (0, 0, 0, 2), expand=False))
    return Group(*lines)


def _footer(report: Report) -> Text:
    summary = report.summary
    parts = []
    if summary.get("files") is not None:
        parts.append(f"{summary['files']} file{'s' if summary['files'] != 1 else ''} linted")
    if summary.get("problems"):
        parts.append(f"{len(summary['problems'])} could not be read")
    if summary.get("suppressed"):
        parts.append(f"{summary['suppressed']} suppressed")
    if summary.get("run_dir"):
        parts.append(f"kept in {plain(summary['run_dir'])}")
    return Text("; ".join(parts), style="dim")
