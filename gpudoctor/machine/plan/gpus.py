"""Cards named on the command line: `2x16GB`, `24GB,12GB`, `2xRTX 5070 Ti:16GB`."""

from __future__ import annotations

import re

from gpudoctor.errors import UsageError
from gpudoctor.machine.rates import pcie_payload
from gpudoctor.machine.topology import UNKNOWN_PEAK, Node, Topology, peak_of

_PART = re.compile(r"(?:(\d{1,3})\s*x\s*)?(?:([A-Za-z][\w \-]*):)?(\d+(?:\.\d+)?)\s*(GB|GiB|G)", re.IGNORECASE)
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(GB|MB)(?:/s)?", re.IGNORECASE)
_USABLE = 0.99
_DEFAULT_LINK = (4, 8)


def parse_gpus(text: str, link: str | None = None) -> Topology:
    """Cards as given, without P2P, on PCIe 4.0 x8 unless `link` gives a rate; UsageError if the text cannot be read."""
    assumed = []
    if link is None:
        rate = pcie_payload(*_DEFAULT_LINK)
        assumed.append(f"cards hang on PCIe {_DEFAULT_LINK[0]}.0 x{_DEFAULT_LINK[1]} without P2P ({rate / 1e9:.0f} GB/s a copy); --link sets the rate")
    else:
        rate = parse_rate(link)
    nodes: list[Node] = []
    for part in text.split(","):
        found = _PART.fullmatch(part.strip())
        if found is None or not 1 <= int(found[1] or 1) <= 512:
            raise UsageError(f"--gpus {text}: cannot read {part.strip()!r}; write 2x16GB, 24GB,12GB or '2xRTX 5070 Ti:16GB'")
        name = (found[2] or "").strip()
        peak = peak_of(name)
        if peak is None:
            assumed.append(f"{name or 'each card'} reaches {UNKNOWN_PEAK / 1e12:.0f} Tflop/s in 16 bits; name the card to use its data sheet")
        node = Node(name or f"{found[3]} GB card", int(float(found[3]) * _USABLE * 2**30), peak or UNKNOWN_PEAK, rate)
        nodes += [node] * int(found[1] or 1)
    return Topology(tuple(nodes), {}, (), tuple(dict.fromkeys(assumed)))


def parse_rate(text: str) -> float:
    """`12GB/s` → 12e9; UsageError if it is no rate."""
    found = _RATE.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"--link {text}: write a rate such as 12GB/s")
    return float(found[1]) * (1e9 if found[2].upper() == "GB" else 1e6)


def parse_count(text: str, option: str) -> int:
    """`1.1B` → 1_100_000_000; K, M, B and T are decimal."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMBT]?)", text.strip().upper())
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"{option} {text}: write a number such as 1.1B or 350M")
    return round(float(found[1]) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[found[2]])
