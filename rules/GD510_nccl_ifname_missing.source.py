"""The variable set in source, against the interfaces of the host that runs the check."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.model import Confidence, Evidence
from gpudoctor.source import Module
from gpudoctor.source.evidence import at
from gpudoctor.source.model import unique
from gpudoctor.source.variables import variables_set

_MESSAGE = "`NCCL_SOCKET_IFNAME={value}` matches no interface of this host ({interfaces})"
_FIX = "At {place}, delete the setting (inside one host NCCL needs none), or name an interface that `ip link` shows on every host."


def check(module: Module, params: Mapping[str, Any]) -> Iterator[Evidence]:
    """On a machine without a GPU the answer is only `possible`: training will run elsewhere."""
    for event, name, value in variables_set(module.model):
        if name not in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") or value is None:
            continue
        present = [n for _, n in socket.if_nameindex()]
        if present and not _matches(value, present) and event in unique([event]):
            here = os.path.exists("/proc/driver/nvidia/version") or os.path.exists("/dev/nvidiactl")
            yield at(event, value=value, interfaces=", ".join(present), confidence=None if here else Confidence.possible, message=_MESSAGE.replace("NCCL_SOCKET", name[:4] + "_SOCKET"), fix=_FIX)


def _matches(value: str, present: list[str]) -> bool:
    """NCCL's rules: a list of prefixes, `=` for whole names, `^` for all but those."""
    exclude = value.startswith("^")
    names = value.removeprefix("^")
    exact = names.startswith("=")
    wanted = [n.split(":")[0] for n in names.removeprefix("=").split(",") if n]
    hits = [p for p in present if any(p == w if exact else p.startswith(w) for w in wanted)]
    return len(hits) < len(present) if exclude else bool(hits)
