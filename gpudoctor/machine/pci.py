"""PCI devices in sysfs: the card's link, the slot it hangs on, the bridges above, IOMMU and ACS."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpudoctor.machine.rates import generation_of
from gpudoctor.machine.seam import Machine

_DEVICES = "/sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_ACS_CAPABILITY = 0x000D
_REDIRECTS = 0x4 | 0x8  # P2P request redirect, P2P completion redirect


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """One end of a PCIe link as sysfs tells it."""

    gen: int | None
    width: int | None
    gen_max: int | None
    width_max: int | None


def address_of(bus_id: str | None) -> str | None:
    """NVML's `00000000:01:00.0` as sysfs writes it: `0000:01:00.0`."""
    if not bus_id:
        return None
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def link_end(machine: Machine, address: str) -> LinkEnd:
    """The link as the device at `address` sees it; all None where sysfs does not show it."""
    def read(name: str) -> str | None:
        found = machine.text(f"{_DEVICES}/{address}/{name}")
        return found.strip() if found else None

    def lanes(text: str | None) -> int | None:
        return int(text) if text and text.isdigit() and 0 < int(text) <= 32 else None

    return LinkEnd(
        generation_of(read("current_link_speed")), lanes(read("current_link_width")),
        generation_of(read("max_link_speed")), lanes(read("max_link_width")),
    )


def bridges_above(machine: Machine, address: str) -> list[str]:
    """PCI bridges from the card's own port up to the root port, nearest first."""
    target = machine.target(f"{_DEVICES}/{address}")
    parts = target.split("/") if target else []
    found = [p for p in parts if _ADDRESS.fullmatch(p)]
    return found[-2::-1] if len(found) > 1 else []


def root_of(machine: Machine, address: str) -> str | None:
    """The host bridge above the card, such as `pci0000:00`."""
    target = machine.target(f"{_DEVICES}/{address}")
    return next((p for p in (target or "").split("/") if p.startswith("pci")), None)


def numa_node(machine: Machine, address: str) -> int:
    """The card's NUMA node, -1 if unknown."""
    found = machine.text(f"{_DEVICES}/{address}/numa_node")
    try:
        return int(found) if found else -1
    except ValueError:
        return -1


def iommu_of(machine: Machine, addresses: list[str]) -> str:
    """`off`, `passthrough`, `translating` or `unknown` for these devices."""
    types = {(machine.text(f"{_DEVICES}/{a}/iommu_group/type") or "").strip() for a in addresses} - {""}
    if any(t.startswith("DMA") for t in types):
        return "translating"
    if types:
        return "passthrough"
    if machine.entries("/sys/class/iommu"):
        words = (machine.text("/proc/cmdline") or "").split()
        return "passthrough" if "iommu=pt" in words or "iommu.passthrough=1" in words else "unknown"
    return "off" if machine.entries("/sys/class") else "unknown"


def acs_redirects(machine: Machine, addresses: list[str]) -> int | None:
    """How many bridges above these cards redirect peer traffic; None if their configuration needs root to read."""
    bridges = {b for a in addresses for b in bridges_above(machine, a)}
    seen = redirecting = 0
    for bridge in sorted(bridges):
        config = machine.blob(f"{_DEVICES}/{bridge}/config")
        if config is None or len(config) < 0x104:
            continue
        seen += 1
        control = _acs_control(config)
        redirecting += control is not None and bool(control & _REDIRECTS)
    return redirecting if seen else None


def _acs_control(config: bytes) -> int | None:
    """Walk the extended capabilities (a linked list from 0x100) to ACS, and return its control register."""
    offset = 0x100
    for _ in range(64):
        if not 0x100 <= offset <= len(config) - 8:
            return None
        header = int.from_bytes(config[offset : offset + 4], "little")
        if header & 0xFFFF == _ACS_CAPABILITY:
            return int.from_bytes(config[offset + 6 : offset + 8], "little")
        offset = header >> 20
    return None


def nvidia_cards(machine: Machine) -> list[str]:
    """Addresses of NVIDIA display and 3D controllers on the bus, driver or not."""
    found = []
    for address in machine.entries(_DEVICES):
        vendor = (machine.text(f"{_DEVICES}/{address}/vendor") or "").strip()
        if vendor == "0x10de" and (machine.text(f"{_DEVICES}/{address}/class") or "").strip().startswith("0x03"):
            found.append(address)
    return found
