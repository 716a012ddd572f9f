"""Cards and their links as the simulator sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpudoctor.machine.cards import Card, Pair
from gpudoctor.machine.rates import nvlink_rate, pcie_payload

# A ring through host memory: each byte goes down one link and up the next, both ways at once, through the CPU's memory.
# nccl-tests on GeForce cards without P2P reach this share of one link's pinned copy.
STAGED = 0.45
DIRECT = 0.85
_STAGED_LATENCY, _DIRECT_LATENCY = 15e-6, 6e-6
_PEAKS = {  # dense 16-bit matrix operations a second, from the makers' data sheets
    "H200": 989e12, "H100 PCIE": 756e12, "H100": 989e12, "B200": 2250e12, "A100": 312e12, "A40": 150e12, "A10": 125e12, "L40S": 362e12, "L40": 181e12, "L4": 121e12,
    "V100": 125e12, "T4": 65e12, "RTX 5090": 209e12, "RTX 5080": 113e12, "RTX 5070 TI": 88e12, "RTX 5070": 62e12, "RTX 5060 TI": 48e12,
    "RTX 4090": 165e12, "RTX 4080": 98e12, "RTX 4070 TI": 80e12, "RTX 4070": 58e12, "RTX 4060 TI": 44e12, "RTX 4060": 30e12,
    "RTX 3090": 71e12, "RTX 3080": 60e12, "RTX 3070": 41e12, "RTX 3060": 26e12, "RTX A6000": 155e12, "RTX 6000 ADA": 364e12,
}
UNKNOWN_PEAK = 60e12
BUSY_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Node:
    """One card: memory [B], 16-bit peak [operations/s], its link's pinned copy [B/s] and the uplink it shares (-1 its own)."""

    name: str
    memory: int
    peak: float = UNKNOWN_PEAK
    link: float = 12e9
    uplink: int = -1

    @property
    def speed(self) -> float:
        """Operations a second that training reaches."""
        return self.peak * BUSY_SHARE


@dataclass(frozen=True, slots=True)
class Topology:
    """Cards of one host. `pairs` holds card-to-card rates [B/s] and latencies [s] where they are known."""

    nodes: tuple[Node, ...]
    pairs: dict[tuple[int, int], tuple[float, float]]
    uplinks: tuple[float, ...] = ()
    assumed: tuple[str, ...] = ()

    def hop(self, a: int, b: int, crowd: int) -> tuple[float, float]:
        """Rate and latency from card a to card b in a ring of `crowd` cards that all send at once."""
        known = self.pairs.get((a, b))
        if known is not None:
            return known
        ends = [self.nodes[i] for i in (a, b)]
        rates = [n.link if n.uplink < 0 else min(n.link, self.uplinks[n.uplink] / self._sharers(n.uplink, crowd)) for n in ends]
        return STAGED * min(rates), _STAGED_LATENCY

    def _sharers(self, uplink: int, crowd: int) -> int:
        return max(sum(n.uplink == uplink for n in self.nodes[:crowd]), 1)

    def first(self, count: int) -> Topology:
        """The same host with `count` cards; more than there are repeat the last one."""
        nodes = (*self.nodes, *[self.nodes[-1]] * max(count - len(self.nodes), 0))[:count]
        pairs = dict(self.pairs)
        if count > len(self.nodes) > 1 and pairs:
            slowest = min(pairs.values())
            pairs |= {(a, b): slowest for a in range(count) for b in range(count) if a != b and (a, b) not in pairs}
        return Topology(nodes, pairs, self.uplinks, self.assumed)


def peak_of(name: str | None) -> float | None:
    """The card's 16-bit peak by its product name, None if it is not in the list."""
    upper = (name or "").upper()
    return next((peak for key, peak in sorted(_PEAKS.items(), key=lambda i: -len(i[0])) if key in upper), None)


def topology_of(cards: Sequence[Card], pairs: Sequence[Pair]) -> Topology:
    """The topology of an examined machine: measured rates first, else the links' limits."""
    assumed: list[str] = []
    index = {c.index: i for i, c in enumerate(cards)}
    uplinks, nodes = _shared(cards), []
    for i, card in enumerate(cards):
        peak = peak_of(card.name)
        if peak is None:
            assumed.append(f"{card.name or 'a card'} reaches {UNKNOWN_PEAK / 1e12:.0f} Tflop/s in 16 bits")
        link = card.h2d or pcie_payload(card.gen_max or 4, card.width_max or 16)
        if not card.h2d:
            assumed.append(f"card {card.index} copies at {link / 1e9:.0f} GB/s (not measured)")
        nodes.append(Node(card.name or "card", card.memory or 0, peak or UNKNOWN_PEAK, link, 0 if i in uplinks[1] else -1))
    rates = {}
    for pair in pairs:
        a = cards[index[pair.device]]
        if pair.p2p == "ok" and pair.bandwidth:
            rates[index[pair.device], index[pair.peer]] = (DIRECT * pair.bandwidth, _DIRECT_LATENCY)
        elif pair.kind == "NVLINK" and pair.p2p == "untested" and (nominal := nvlink_rate(a.arch or "", pair.nvlinks)):
            rates[index[pair.device], index[pair.peer]] = (DIRECT * nominal, _DIRECT_LATENCY)
            assumed.append(f"NVLink between {pair.device} and {pair.peer} at its nominal rate (not measured)")
    return Topology(tuple(nodes), rates, uplinks[0], tuple(dict.fromkeys(assumed)))


def _shared(cards: Sequence[Card]) -> tuple[tuple[float, ...], set[int]]:
    """The uplink that copies slow each other on, and who hangs on it: cards whose rate falls when all copy."""
    slowed = {i for i, c in enumerate(cards) if c.h2d and c.h2d_together and c.h2d_together < 0.7 * c.h2d}
    if len(slowed) < 2:
        return (), set()
    return (sum(cards[i].h2d_together or 0.0 for i in slowed),), slowed
