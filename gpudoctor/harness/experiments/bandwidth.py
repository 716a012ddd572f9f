"""How fast bytes move: host and device, card and card, all ranks; and how many of them a training step moves."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

from gpudoctor.harness.context import Context
from gpudoctor.harness.link import Link, link_of
from gpudoctor.harness.result import Column, Plot, Result, Series
from gpudoctor.harness.steps import Trainer

TITLE = "Bandwidth: what the links carry and what a step asks of them"
COLUMNS = [Column("what"), Column("size", "B"), Column("time", "s"), Column("rate", "B/s"), Column("of the link's limit", "%")]


def run(context: Context) -> Result:
    """Copies by size, all-reduce by size (bus bandwidth as nccl-tests count it), then steps by batch size."""
    link = _link(context)
    rows: list[list[Any]] = []
    curves: list[Series] = []
    if context.rank == 0:
        alone = context.solo()
        if context.cuda:
            for name, make in _copies(alone).items():
                curves.append(_measure(alone, name, [1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28], make, rows, link.limit if link and name[0] in "HD" else 0.0))
        else:
            curves.append(_measure(alone, "copy in host memory", [1 << 16, 1 << 20, 1 << 24], _host_copy, rows, 0.0))
    context.gather(None)
    if context.world > 1:
        sizes = [1 << 12, 1 << 16, 1 << 20, 1 << 24] + ([1 << 28] if context.cuda and not context.shares_cards else [])
        curves.append(_measure(context, f"all-reduce, {context.backend}", sizes, lambda size: _all_reduce(context, size), rows, 0.0, 2 * (context.world - 1) / context.world))
    steps, shares = _steps(context, curves[-1].y[-1] if context.world > 1 else 0.0)
    rows += steps
    plots = [Plot("Rate by size", "bytes", "bytes a second", curves, "xy")]
    if shares:
        plots.append(Plot("Share of a step that the all-reduce would take at its measured rate", "sequences a rank", "share", [shares]))
    return Result("bandwidth", TITLE, verdict(rows, link, context, shares), "ok", COLUMNS, rows, plots, _limits(context), {"link": str(link) if link else "unknown"})


def _measure(context: Context, name: str, sizes: list[int], make: Any, rows: list[list[Any]], limit: float, factor: float = 1.0) -> Series:
    line = Series(name)
    for size in sizes:
        seconds = context.median_s(make(size), runs=5, warmup=2)
        rate = size * factor / seconds
        rows.append([name, size, seconds, rate, rate / limit if limit else ""])
        line.add(float(size), rate)
    return line


def _copies(context: Context) -> dict[str, Any]:
    def between(pinned: bool, up: bool) -> Any:
        def make(size: int) -> Any:
            host, card = torch.empty(size, dtype=torch.uint8, pin_memory=pinned), torch.empty(size, dtype=torch.uint8, device=context.device)
            return (lambda: card.copy_(host, non_blocking=pinned)) if up else (lambda: host.copy_(card, non_blocking=pinned))

        return make

    found = {f"{way} {memory}": between(memory == "pinned", way == "H2D") for memory in ("pinned", "pageable") for way in ("H2D", "D2H")}
    if context.cards > 1:
        peer = (context.device.index + 1) % context.cards
        kind = "peer to peer" if torch.cuda.can_device_access_peer(context.device, peer) else "through the host, no P2P"

        def make(size: int) -> Any:
            here, there = torch.empty(size, dtype=torch.uint8, device=context.device), torch.empty(size, dtype=torch.uint8, device=f"cuda:{peer}")
            return lambda: there.copy_(here)

        found[f"card to card, {kind}"] = make
    return found


def _host_copy(size: int) -> Any:
    a, b = (torch.ones(size, dtype=torch.uint8) for _ in range(2))
    return lambda: b.copy_(a)


def _all_reduce(context: Context, size: int) -> Any:
    buffer = torch.ones(size // 4, device=context.device)
    return lambda: distributed.all_reduce(buffer)


def _steps(context: Context, all_reduce_rate: float) -> tuple[list[list[Any]], Series | None]:
    """Bytes and time of a DDP step by batch size; gradients are the same for any batch, so larger batches ask less of the link."""
    if context.world < 2:
        return [], None
    rows: list[list[Any]] = []
    shares = Series("all-reduce")
    for batch in (1, 4, 16, 64) if context.cuda else (1, 4, 16):
        trainer = Trainer(context, batch, distributed.group.WORLD)
        seconds = context.median_s(trainer.step, runs=3, warmup=2)
        moved = int(2 * (context.world - 1) / context.world * trainer.gradient_bytes)
        rows.append([f"DDP step, {batch} sequences a rank", moved, seconds, moved / seconds, ""])
        shares.add(float(batch), min(1.0, moved / all_reduce_rate / seconds))
    return rows, shares


def _link(context: Context) -> Link | None:
    if not context.cuda:
        return None
    p = torch.cuda.get_device_properties(context.device)
    return link_of(f"{p.pci_domain_id:04x}:{p.pci_bus_id:02x}:{p.pci_device_id:02x}.0") if hasattr(p, "pci_bus_id") else None


def _limits(context: Context) -> list[str]:
    found = []
    if not context.cuda:
        found.append("no CUDA GPU: host-to-device, device-to-host and card-to-card copies were not measured")
    elif context.cards < 2:
        found.append("one GPU: nothing to copy to")
    if context.shares_cards or (context.cuda and context.backend == "gloo"):
        found.append("the all-reduce goes through gloo and host memory, not over a link between cards")
    return found


def verdict(rows: list[list[Any]], link: Link | None, context: Context, shares: Series | None) -> str:
    best: dict[str, list[Any]] = {}
    for row in rows:
        if row[0] not in best or row[3] > best[row[0]][3]:
            best[row[0]] = row
    said = []
    if "H2D pinned" in best:
        pinned, pageable = best["H2D pinned"][3], best["H2D pageable"][3]
        share = f", {best['H2D pinned'][4]:.0%} of {link}" if link and link.limit else ""
        said.append(f"pinned memory reaches {pinned / 1e9:.1f} GB/s to the card{share}, pageable {pageable / 1e9:.1f} GB/s")
    for name, row in best.items():
        if name.startswith("all-reduce"):
            said.append(f"{name} reaches {row[3] / 1e9:.2f} GB/s of bus bandwidth on {context.world} ranks")
    if shares:
        said.append(f"at that rate the gradients would take {shares.y[0]:.0%} of a step with {shares.x[0]:.0f} sequence a rank and {shares.y[-1]:.0%} with {shares.x[-1]:.0f}: gradients do not grow with the batch")
    return "; ".join(said) or "nothing moves between one rank and itself"
