"""What links can do: PCIe by generation and width, the steps between cards, known cards."""

from __future__ import annotations

_GT = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
_CODING = {1: 0.8, 2: 0.8, 3: 128 / 130, 4: 128 / 130, 5: 128 / 130, 6: 242 / 256}
_PROTOCOL = 0.84
_NVLINK = {"6.0": 20e9, "7.0": 25e9, "7.5": 25e9, "8.0": 25e9, "8.6": 14e9, "9.0": 25e9, "10.0": 50e9, "10.3": 50e9}

LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
P2P_STATUS = {
    0: "ok", 1: "chipset not supported", 2: "card not supported", 3: "topology not supported",
    4: "disabled by the driver's registry", 5: "not supported", 6: "unknown",
}


def pcie_rate(generation: int, width: int) -> float:
    """The link's limit, one direction, after line coding [B/s]; 0 for an unknown generation."""
    return _GT.get(generation, 0.0) / 8 * _CODING.get(generation, 0.0) * width


def pcie_payload(generation: int, width: int) -> float:
    """What a large pinned copy usually reaches [B/s]: the limit less packet headers."""
    return pcie_rate(generation, width) * _PROTOCOL


def nvlink_rate(arch: str, links: int) -> float:
    """NVLink's limit, one direction [B/s], by compute capability such as 9.0; 0 for cards without."""
    return _NVLINK.get(arch, 0.0) * links


def generation_of(speed: str | None) -> int | None:
    """`32.0 GT/s PCIe` → 5."""
    if not speed:
        return None
    try:
        rate = float(speed.split()[0]) * 1e9
    except (ValueError, IndexError):
        return None
    return next((g for g, gt in _GT.items() if abs(gt - rate) < 1e6), None)
