"""What the detector found: pairs of accesses without an order, each pair of places once."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, NamedTuple

from gpudoctor.probes.frames import _is_users as is_users
from gpudoctor.probes.frames import shown

Site = tuple[Any, ...]
"""Code objects and instruction offsets, innermost first, alternating; a leading text stands for a node of backward."""

MAX_RACES = 200
MAX_FRAMES = 12


class Access(NamedTuple):
    """One operation's touch of some bytes: the `position`-th on `stream` (None: the host), the `order`-th the host issued."""

    stream: int | None
    position: int
    op: str
    writes: bool
    site: Site
    order: int

    @property
    def in_backward(self) -> bool:
        """True if the autograd engine issued it; the engine tells the allocator of the streams that it uses."""
        return bool(self.site) and isinstance(self.site[0], str)


@dataclass(slots=True)
class Race:
    """Two accesses that nothing orders; `first` was issued first."""

    kind: str
    first: Access
    second: Access
    bytes: int
    sure: bool
    step: int
    count: int = 1


@dataclass(slots=True)
class Races:
    """All races found, by kind and places."""

    found: dict[tuple[Any, ...], Race] = field(default_factory=dict)
    dropped: int = 0

    def add(self, race: Race) -> None:
        key = (race.kind, race.first.op, race.second.op, race.first.site, race.second.site)
        known = self.found.get(key)
        if known is not None:
            known.count += 1
        elif len(self.found) < MAX_RACES:
            self.found[key] = race
        else:
            self.dropped += 1

    def __iter__(self) -> Iterator[Race]:
        return iter(self.found.values())

    def __len__(self) -> int:
        return len(self.found)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of a stack; lines count from 1."""

    path: str
    line: int
    function: str

    @property
    def is_users(self) -> bool:
        return is_users(self.path)

    def __str__(self) -> str:
        text = linecache.getline(self.path, self.line).strip()
        return f"{shown(self.path)}:{self.line} in {self.function}" + (f": {text}" if text else "")


def frames(site: Site) -> list[Frame]:
    """The frames of a site, innermost first; lines are looked up only now."""
    parts = list(site[1:] if site and isinstance(site[0], str) else site)
    return [Frame(c.co_filename, _line(c, i), c.co_name) for c, i in zip(parts[::2], parts[1::2], strict=True)]


def users_frame(site: Site) -> Frame | None:
    """The innermost frame in the user's own files."""
    return next((f for f in frames(site) if f.is_users), None)


def stack_text(site: Site) -> str:
    """The stack for a reader, innermost first; library frames only where the user has none."""
    all_frames = frames(site)
    shown = [f for f in all_frames if f.is_users] or all_frames
    head = [f"backward of {site[0]}"] if site and isinstance(site[0], str) else []
    return "\n".join(head + [str(f) for f in shown[:MAX_FRAMES]])


def _line(code: CodeType, offset: int) -> int:
    for start, end, line in code.co_lines():
        if start <= offset < end and line is not None:
            return line
    return code.co_firstlineno
