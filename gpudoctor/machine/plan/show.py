"""A plan for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gpudoctor.machine.plan.advise import Choice, Plan, usable
from gpudoctor.machine.simulate import MARK
from gpudoctor.units import duration, number, size


def show(plan: Plan, console: Console) -> None:
    """Model, cards, strategies, recommendation, scaling, and what was assumed."""
    c = plan.costs
    console.print(f"[bold]{escape(c.name)}[/]: {number(c.parameters)} parameters, {c.precision}, {escape(plan.optimizer)}, batch {c.batch} a card"
                  + (" (counted on the meta device)" if c.exact else " (by formula)"))
    checkpointed = f" ({size(c.activations_checkpointed)} checkpointed)" if c.activations_checkpointed is not None else ""
    console.print(f"parameters {size(c.parameter_bytes)} · gradients {size(c.gradient_bytes)} · states {size(c.state_bytes(plan.optimizer))} · activations {size(c.activations)}{checkpointed}")
    for node in dict.fromkeys(plan.topology.nodes):
        console.print(f"{plan.topology.nodes.count(node)} × {escape(node.name)}: {size(node.memory)}, {size(usable(node.memory))} usable")
    console.print(_strategies(plan))
    if plan.best is None:
        console.print("[bold red]Nothing fits.[/]")
    else:
        console.print(f"[bold green]Recommended: {escape(plan.best.title)}[/], up to batch {plan.batch_limit} a card")
    for reason in plan.reasons:
        console.print(f"  · {escape(reason)}")
    if plan.best and plan.best.load.split:
        console.print(f"  · blocks by card: {', '.join(map(str, plan.best.load.split))}")
    if plan.shares:
        console.print(f"  · unlike cards: batch by rank {', '.join(map(str, plan.shares))}")
    if plan.scaling:
        console.print(f"Data parallel by cards ({MARK}): " + ", ".join(f"{s.cards} → {s.speedup:.2f}×" for s in plan.scaling))
    for line in (*plan.topology.assumed, *c.notes):
        console.print(f"[dim]assumed: {escape(line)}[/]")


def _strategies(plan: Plan) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading, justify in (("strategy", "left"), ("a card", "right"), ("sent a step", "right"), ("step", "right"), ("samples/s", "right"), ("", "left")):
        table.add_column(heading, justify="right" if justify == "right" else "left")
    for x in _worth_showing(plan):
        verdict = "[green]fits[/]" if x.fits else f"[red]lacks {size(x.short)}[/]"
        row = [escape(x.title), size(max(x.load.memory)), size(x.load.sent) if x.load.sent else "–", duration(x.load.time * 1e9) if x.load.time else "–", f"{x.rate:.3g}" if x.rate else "–", verdict]
        table.add_row(*row, style="bold" if x is plan.best else "")
    return table


def _worth_showing(plan: Plan) -> list[Choice]:
    """Each strategy plain; where that does not fit, also with the fewest additions that do; and the recommended one."""
    shown: list[Choice] = []
    for name in dict.fromkeys(c.name for c in plan.choices):
        own = [c for c in plan.choices if c.name == name]
        shown.append(own[0])
        if not own[0].fits and (fitting := [c for c in own if c.fits]):
            shown.append(min(fitting, key=lambda c: (c.additions, -c.rate)))
        if plan.best in own and plan.best not in shown:
            shown.append(plan.best)
    return shown
