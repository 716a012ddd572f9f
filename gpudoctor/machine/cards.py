"""Cards and pairs of cards, joined from NVML, sysfs and real copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpudoctor.machine import pci
from gpudoctor.machine.rates import LEVELS, P2P_STATUS
from gpudoctor.machine.seam import Machine


@dataclass(slots=True)
class Card:
    """One card; None is unknown. `gen`/`width` are now, `*_max` card and slot together, `*_card` the card alone."""

    index: int
    name: str | None = None
    uuid: str | None = None
    address: str | None = None
    arch: str | None = None
    memory: int | None = None
    used: int | None = None
    sm_count: int | None = None
    gen: int | None = None
    width: int | None = None
    gen_max: int | None = None
    width_max: int | None = None
    gen_card: int | None = None
    width_card: int | None = None
    gen_load: int | None = None
    width_load: int | None = None
    h2d: float | None = None
    d2h: float | None = None
    h2d_together: float | None = None
    numa: int = -1
    root: str | None = None
    bridges: list[str] = field(default_factory=list)
    nvlinks: list[str] = field(default_factory=list)
    mig: bool | None = None
    display: bool | None = None
    processes: list[tuple[int, int | None]] = field(default_factory=list)


@dataclass(slots=True)
class Pair:
    """What lies from `device` to `peer`. `p2p` is ok, unsupported, disabled, broken or untested; rates in B/s."""

    device: int
    peer: int
    kind: str | None = None
    p2p: str = "untested"
    reason: str | None = None
    nvlinks: int = 0
    bandwidth: float | None = None
    latency: float | None = None
    wrong_bytes: int | None = None


def cards_of(machine: Machine, nvml: dict[str, Any], copies: dict[str, Any]) -> list[Card]:
    """All cards that NVML lists, in its order."""
    measured = {c.get("uuid"): c for c in copies.get("cards", []) if c.get("uuid")}
    by_index = {c.get("index"): c for c in copies.get("cards", []) if not c.get("uuid")}
    return [_card(machine, c, measured.get(c.get("uuid")) or by_index.get(c["index"]) or {}) for c in nvml.get("cards", [])]


def _card(machine: Machine, told: dict[str, Any], measured: dict[str, Any]) -> Card:
    address = pci.address_of(told.get("bus_id"))
    own = pci.link_end(machine, address) if address else pci.LinkEnd(None, None, None, None)
    bridges = pci.bridges_above(machine, address) if address else []
    port = pci.link_end(machine, bridges[0]) if bridges else pci.LinkEnd(None, None, None, None)
    arch = told.get("arch")
    return Card(
        index=told["index"], name=told.get("name"), uuid=told.get("uuid"), address=address,
        arch=".".join(map(str, arch)) if arch else None, memory=told.get("memory_total"), used=told.get("memory_used"),
        sm_count=measured.get("sm_count"),
        gen=_known(told.get("gen"), own.gen), width=_known(told.get("width"), own.width),
        gen_max=_least(told.get("gen_max"), port.gen_max, own.gen_max), width_max=_least(told.get("width_max"), port.width_max, own.width_max),
        gen_card=_known(told.get("gen_card"), own.gen_max), width_card=_known(own.width_max, None),
        gen_load=measured.get("gen_load"), width_load=measured.get("width_load"),
        h2d=measured.get("h2d"), d2h=measured.get("d2h"), h2d_together=measured.get("h2d_together"),
        numa=pci.numa_node(machine, address) if address else -1, root=pci.root_of(machine, address) if address else None,
        bridges=bridges, nvlinks=list(told.get("nvlinks") or []),
        mig=None if told.get("mig") is None else bool(told["mig"]), display=None if told.get("display") is None else bool(told["display"]),
        processes=[(int(p), b) for p, b in told.get("processes") or []],
    )


def pairs_of(nvml: dict[str, Any], copies: dict[str, Any], cards: list[Card]) -> list[Pair]:
    """All ordered pairs of cards."""
    told = {(p["device"], p["peer"]): p for p in nvml.get("pairs", [])}
    indexes = {c.uuid: c.index for c in cards if c.uuid}
    measured = {}
    for p in copies.get("pairs", []):
        ends = [indexes.get(p.get(f"{side}_uuid"), p.get(side)) for side in ("device", "peer")]
        measured[tuple(ends)] = p
    addresses = {c.address for c in cards}
    keys = [(a, b, (a.index, b.index)) for a in cards for b in cards if a is not b]
    return [_pair(a, b, addresses, told.get(key, {}), measured.get(key, {})) for a, b, key in keys]


def _pair(a: Card, b: Card, addresses: set[str | None], told: dict[str, Any], measured: dict[str, Any]) -> Pair:
    links = _links_between(a, b, addresses)
    pair = Pair(a.index, b.index, kind="NVLINK" if links else LEVELS.get(told.get("level", -1)) or _level(a, b), nvlinks=links)
    status = [told[way] for way in ("read", "write") if told.get(way) is not None]
    if any(status):
        worst = max(status)
        pair.p2p = {4: "disabled", 6: "untested"}.get(worst, "unsupported")
        pair.reason = P2P_STATUS.get(worst, f"status {worst}")
    if measured:
        pair.bandwidth, pair.latency = measured.get("bandwidth"), measured.get("latency")
        pair.wrong_bytes = measured.get("wrong_bytes")
        if pair.wrong_bytes or measured.get("failed"):
            pair.p2p = "broken"
        elif measured.get("access"):
            pair.p2p = "ok"
        elif measured.get("access") is False and pair.p2p == "untested":
            pair.p2p, pair.reason = "unsupported", pair.reason or "CUDA reports no peer access"
    return pair


def _links_between(a: Card, b: Card, addresses: set[str | None]) -> int:
    """NVLinks from a to b: those that end at b, or else those of both that end at a switch."""
    direct = sum(pci.address_of(end) == b.address for end in a.nvlinks)
    to_switch = [sum(pci.address_of(end) not in addresses for end in c.nvlinks) for c in (a, b)]
    return direct or min(to_switch)


def _level(a: Card, b: Card) -> str | None:
    """The topology level by the cards' bridges, where NVML does not tell."""
    if not a.root or not b.root:
        return None
    if set(a.bridges) & set(b.bridges):
        return "PIX" if a.bridges[:2] and b.bridges[:2] and a.bridges[1:2] == b.bridges[1:2] else "PXB"
    if a.root == b.root:
        return "PHB"
    return "NODE" if a.numa == b.numa and a.numa >= 0 else "SYS"


def _known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first


def _least(*values: int | None) -> int | None:
    known = [v for v in values if v]
    return min(known) if known else None
