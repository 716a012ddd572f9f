"""Tables of facts for the terminal: ranks and their steps, memory, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from gpudoctor.report.bars import bar, sparkline
from gpudoctor.report.plain import one_line
from gpudoctor.units import duration, number, share, size

Summary = dict[str, Any]
SHOWN_PARAMS = 12
_PHASES = (("data", "d"), ("forward", "f"), ("backward", "b"), ("optimizer", "o"))


def fact_tables(summary: Summary, width: int, ascii_only: bool) -> Iterator[Table]:
    """Yield the tables that the summary can fill, made for `width` columns."""
    cells = 12 if width < 100 else 24
    for make in (_devices, _steps, _memory, _gradients):
        table = make(summary, cells, ascii_only)
        if table is not None:
            yield table


def _table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def _steps(summary: Summary, cells: int, ascii_only: bool) -> Table | None:
    rows = summary.get("steps")
    if not rows:
        return None
    spread = cells > 12
    known = any(r.get(f"{name}_ns") for r in rows for name, _ in _PHASES)
    phases_title = "data|forward|backward|optimizer" if spread else "data|fwd|bwd|opt"
    table = _table("steps", "rank", "steps", "median", *(("p10–p90",) if spread else ()), *((phases_title, "data wait") if known else ()), right=("rank", "steps", "median", "data wait"))
    for r in rows:
        phases = [r.get(f"{name}_ns") or 0 for name, _ in _PHASES]
        total = sum(phases)
        split = (_split(phases, cells, ascii_only) if total else "not known", share((r.get("data_ns") or 0) / r["median_ns"]) if total and r["median_ns"] else "")
        band = f"{duration(r['p10_ns'])}–{duration(r['p90_ns'])}" if r["p10_ns"] is not None else ""
        table.add_row(
            str(r["rank"]), str(r["steps"]), duration(r["median_ns"]) if r["median_ns"] is not None else "", *((band,) if spread else ()),
            *(split if known else ()),
        )
    return table


def _split(phases: list[float], cells: int, ascii_only: bool) -> str:
    total = sum(phases)
    marks = "dfbo" if ascii_only else "░▒▓█"
    ends = [round(sum(phases[: i + 1]) / total * cells) for i in range(4)]
    return "".join(mark * (end - start) for mark, start, end in zip(marks, [0, *ends], ends, strict=False))


def _memory(summary: Summary, cells: int, ascii_only: bool) -> Table | None:
    rows = summary.get("memory")
    if not rows:
        return None
    top = max((r["total"] if r["total"] and r["device"] != -1 else max(r["peak_reserved"] or 0, r["peak_allocated"] or 0)) for r in rows) or 1
    table = _table("memory (peak)", "rank", "where", "allocated", "reserved", "", "of", right=("allocated", "reserved", "of"))
    for r in rows:
        peak = max(r["peak_reserved"] or 0, r["peak_allocated"] or 0)
        scale = r["total"] if r["total"] and r["device"] != -1 else top
        table.add_row(
            str(r["rank"]), "host" if r["device"] == -1 else f"GPU {r['device']}", size(r["peak_allocated"] or 0),
            size(r["peak_reserved"]) if r["peak_reserved"] else "", bar(peak / scale, cells, ascii_only), size(r["total"]) if r["total"] else "",
        )
    return table


def _gradients(summary: Summary, cells: int, ascii_only: bool) -> Table | None:
    rows = summary.get("gradients")
    if not rows:
        return None
    shown = sorted(rows, key=lambda r: (r["agreement"] if r["agreement"] is not None else 2.0, -(r["numel"] or 0)))[:SHOWN_PARAMS]
    more = f", the {len(shown)} least agreeing of {len(rows)}" if len(rows) > len(shown) else ""
    table = _table(f"gradients: agreement between ranks{more}", "parameter", "elements", "agreement", "norm", "over steps", right=("elements", "agreement", "norm"))
    for r in shown:
        table.add_row(
            one_line(r["param"], 40), number(r["numel"]) if r["numel"] else "", f"{r['agreement']:+.3f}" if r["agreement"] is not None else "not known" if r.get("ranks", 1) > 1 else "one rank",
            f"{r['norm_last']:.3g}", sparkline(r["norms"], cells, ascii_only),
        )
    return table


def busy_title(rows: list[dict[str, Any]]) -> str:
    """What the busy share is a share of."""
    return "busy in steps" if all(r["in_steps"] for r in rows) else "busy"


def _devices(summary: Summary, cells: int, ascii_only: bool) -> Table | None:
    rows = summary.get("devices")
    if not rows:
        return None
    busy = busy_title(rows)
    table = _table("GPUs", "rank", "GPU", "span", busy, "", "kernels", "collectives", right=("span", busy, "kernels", "collectives"))
    for r in rows[:32]:
        table.add_row(str(r["rank"]), str(r["device"]), duration(r["span_ns"]), share(r["busy"]), bar(r["busy"], cells, ascii_only), number(r["kernels"]), number(r["comm_kernels"]))
    return table
