"""Examine a machine: ask every question once, and lay the answers out as facts, tables and what stayed unseen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpudoctor.machine.cards import Card, Pair, cards_of, pairs_of
from gpudoctor.machine.host import Fact, facts_of
from gpudoctor.machine.rates import pcie_payload
from gpudoctor.machine.seam import Machine
from gpudoctor.machine.simulate import MARK, all_reduce_time
from gpudoctor.machine.topology import topology_of

BUCKETS = (1 << 20, 25 << 20, 100 << 20)


@dataclass(slots=True)
class Examined:
    """What a machine told. `unseen` says what could not be seen, and why."""

    host: str
    cards: list[Card] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)

    def fact(self, name: str) -> Fact | None:
        """The first fact of that name."""
        return next((f for f in self.facts if f.name == name), None)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Rows of the canonical tables gpu, link, env_var, machine_fact and device_process."""
        driver = self.fact("driver")
        return {
            "gpu": [_gpu(self.host, c, driver.text if driver else None) for c in self.cards],
            "link": [_link(self.host, p) for p in self.pairs],
            "env_var": [{"name": n, "value": v} for n, v in self.variables.items()],
            "machine_fact": [{"host": self.host, "name": f.name, "text": f.text, "value": f.value} for f in self.facts],
            "device_process": [{"device": c.index, "pid": pid, "bytes": used} for c in self.cards for pid, used in c.processes],
        }

    def all_reduce_times(self) -> dict[int, float]:
        """Expected seconds of an all-reduce over all cards, by its bytes; empty with fewer than two cards. Modelled."""
        if len(self.cards) < 2:
            return {}
        topology = topology_of(self.cards, self.pairs)
        return {count: all_reduce_time(count, topology) for count in BUCKETS}

    def summary(self) -> dict[str, Any]:
        """The same as plain values, for the report's summary."""
        plain: dict[str, Any] = {}
        for fact in self.facts:
            if fact.name != "interface":
                plain[fact.name] = fact.value if fact.value is not None and not fact.text else fact.text
        tables = self.tables()
        return {
            "host": self.host, "facts": plain, "interfaces": [f.text for f in self.facts if f.name == "interface"],
            "cards": tables["gpu"], "links": tables["link"], "variables": self.variables, "unseen": self.unseen,
            "all_reduce": [{"bytes": count, "seconds": seconds, "source": MARK} for count, seconds in self.all_reduce_times().items()],
        }


def examine(machine: Machine) -> Examined:
    """Ask the machine everything; nothing raises, what is missing lands in `unseen`."""
    nvml = machine.nvml()
    copies = machine.copies() if nvml.get("cards") else {"error": "there is no card to copy to"}
    cards = cards_of(machine, nvml, copies)
    facts = facts_of(machine, nvml, copies, cards)
    return Examined(
        host=str(machine.process().get("host", "this host")), cards=cards, pairs=pairs_of(nvml, copies, cards),
        facts=facts, variables=machine.environment(), unseen=_unseen(nvml, copies, cards, {f.name for f in facts}),
    )


def _unseen(nvml: dict[str, Any], copies: dict[str, Any], cards: list[Card], known: set[str]) -> list[str]:
    lines = []
    if "error" in nvml:
        lines.append(f"cards and driver: NVML says {nvml['error']!r}")
    elif not cards:
        lines.append("cards: NVML answers and lists none")
    if cards and "error" in copies:
        lines.append(f"links under load and real peer copies: {copies['error']}")
    if cards and not any(c.root for c in cards):
        lines.append("slots and bridges: sysfs does not show the cards (WSL, a container or a virtual machine)")
    elif len(cards) > 1 and "acs_redirect" not in known:
        lines.append("ACS: reading the bridges' configuration needs root")
    if "shm_total" not in known:
        lines.append("/dev/shm: not there")
    return lines


def _gpu(host: str, c: Card, driver: str | None) -> dict[str, Any]:
    return {
        "host": host, "device": c.index, "name": c.name, "uuid": c.uuid, "bus_id": c.address, "arch": c.arch, "driver": driver,
        "memory": c.memory, "sm_count": c.sm_count, "pcie_gen": c.gen, "pcie_width": c.width, "pcie_gen_max": c.gen_max,
        "pcie_width_max": c.width_max, "pcie_gen_card": c.gen_card, "pcie_width_card": c.width_card,
        "pcie_gen_load": c.gen_load, "pcie_width_load": c.width_load, "numa": c.numa, "nvlinks": len(c.nvlinks),
        "h2d": c.h2d, "d2h": c.d2h, "h2d_together": c.h2d_together, "pcie_rate": _pcie_rate(c), "mig": c.mig, "display": c.display,
    }


def _pcie_rate(c: Card) -> float | None:
    """What the card's link moves one way: measured if it was, else what such a link usually reaches [B/s]."""
    generation, width = c.gen_load or c.gen_max, c.width_load or c.width_max
    return c.h2d_together or c.h2d or (pcie_payload(generation, width) if generation and width else None) or None


def _link(host: str, p: Pair) -> dict[str, Any]:
    return {
        "host": host, "device": p.device, "peer": p.peer, "kind": p.kind, "p2p": p.p2p, "reason": p.reason,
        "bandwidth": p.bandwidth, "latency": p.latency, "nvlinks": p.nvlinks, "wrong_bytes": p.wrong_bytes,
    }
