"""The machine as a tree for a terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from gpudoctor.machine.cards import Card, Pair
from gpudoctor.machine.examine import Examined
from gpudoctor.machine.rates import pcie_rate
from gpudoctor.machine.simulate import MARK
from gpudoctor.units import duration, rate, size

_LABELS = (
    ("driver", "driver"), ("kernel_module", "kernel module"), ("cuda_driver", "CUDA (driver)"), ("torch", "torch"), ("torch_cuda", "CUDA (torch)"),
    ("nccl", "NCCL"), ("kernel", "kernel"), ("wsl", "WSL"), ("container", "container"), ("iommu", "IOMMU"), ("acs_redirect", "ACS redirect"),
    ("numa_balancing", "NUMA balancing"), ("cpus", "CPUs of this process"), ("memlock", "locked memory"), ("nofile", "open files"),
)


def tree_of(examined: Examined) -> Tree:
    """Host, software, cards by host bridge, pairs, variables, and what stayed unseen."""
    root = Tree(f"[bold]{escape(examined.host)}[/]")
    _host(root, examined)
    roots: dict[str, Tree] = {}
    for card in examined.cards:
        above = card.root or ""
        if above not in roots:
            roots[above] = root.add(f"host bridge {escape(above)}, NUMA node {card.numa}" if above else "cards")
        _card(roots[above], card)
    if examined.pairs:
        root.add("pairs (row → column)").add(_matrix(examined.cards, examined.pairs))
    if times := examined.all_reduce_times():
        words = ", ".join(f"{size(count)} in {duration(seconds * 1e9)}" for count, seconds in times.items())
        root.add(f"all-reduce over all cards ({MARK}): {words}")
    if examined.variables:
        branch = root.add("variables")
        for name, value in examined.variables.items():
            branch.add(escape(f"{name}={value}"))
    if examined.unseen:
        branch = root.add("[dim]not seen[/]")
        for line in examined.unseen:
            branch.add(f"[dim]{escape(line)}[/]")
    return root


def _host(root: Tree, examined: Examined) -> None:
    known = [(label, fact.text) for name, label in _LABELS if (fact := examined.fact(name)) is not None and fact.text]
    branch = root.add("host")
    for label, text in known:
        branch.add(f"{label} {escape(text)}")
    total, free = examined.fact("shm_total"), examined.fact("shm_free")
    if total and free and total.value is not None and free.value is not None:
        branch.add(f"/dev/shm {size(total.value)}, {size(free.value)} free")


def _card(branch: Tree, card: Card) -> None:
    words = [f"[bold]{card.index}[/] {escape(card.name or 'unknown card')}"]
    if card.arch:
        words.append(f"sm {card.arch}")
    if card.memory:
        words.append(size(card.memory) + (f", {size(card.used)} used" if card.used is not None else ""))
    node = branch.add(" · ".join(words))
    node.add(_pcie(card))
    if card.h2d:
        together = f", {rate(card.h2d_together)} while all copy" if card.h2d_together else ""
        node.add(f"host → card {rate(card.h2d)}, back {rate(card.d2h or 0)}{together}")
    if card.nvlinks:
        node.add(f"{len(card.nvlinks)} NVLinks up")
    if card.mig:
        node.add("MIG: partitioned")
    if card.display:
        node.add("a display hangs on it")
    if card.processes:
        node.add(f"{len(card.processes)} processes: " + ", ".join(f"{pid}" + (f" ({size(b)})" if b else "") for pid, b in card.processes[:6]))


def _pcie(card: Card) -> str:
    def link(gen: int | None, width: int | None) -> str:
        return f"{gen or '?'}.0 x{width or '?'}"

    words = [f"PCIe {link(card.gen, card.width)} now", f"{link(card.gen_max, card.width_max)} at most"]
    if card.gen_load and card.width_load:
        words.insert(1, f"{link(card.gen_load, card.width_load)} under load ({rate(pcie_rate(card.gen_load, card.width_load))})")
    if card.width_card and card.width_card != card.width_max:
        words.append(f"the card alone x{card.width_card}")
    return ", ".join(words) + (f", at {escape(card.address)}" if card.address else "")


def _matrix(cards: list[Card], pairs: list[Pair]) -> Table:
    table = Table(show_header=True, box=None, pad_edge=False)
    table.add_column("")
    for card in cards:
        table.add_column(str(card.index))
    cells = {(p.device, p.peer): p for p in pairs}
    for a in cards:
        table.add_row(str(a.index), *["·" if a is b else _cell(cells[a.index, b.index]) for b in cards])
    return table


def _cell(pair: Pair) -> str:
    style = {"ok": "green", "broken": "bold red", "untested": "yellow"}.get(pair.p2p, "dim")
    words = [pair.kind or "?", f"[{style}]P2P {pair.p2p}[/]"]
    if pair.bandwidth:
        words.append(rate(pair.bandwidth))
    return " ".join(words)
