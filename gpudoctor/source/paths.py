"""Paths through a region: which wanted events happen, in which order, on each feasible way through its branches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from gpudoctor.source.events import Event, Region
from gpudoctor.source.values import Value, key

Wanted = Callable[[Event], bool]
LIMIT = 256


class Path:
    """Events met so far, how the way ended, and what its branches assume."""

    __slots__ = ("assumed", "end", "events")

    def __init__(self, events: tuple[Event, ...] = (), end: str = "", assumed: tuple[tuple[Any, bool], ...] = ()) -> None:
        self.events, self.end, self.assumed = events, end, assumed

    def then(self, event: Event, end: str = "") -> Path:
        return Path((*self.events, event) if not end else self.events, end, self.assumed)

    def assuming(self, cond: Value, truth: bool) -> Path | None:
        """The path with one more condition; None if it contradicts."""
        while cond.op == "not":
            cond, truth = cond.args[0], not truth
        name = key(cond)
        for known, value in self.assumed:
            if known == name:
                return self if value == truth else None
        return Path(self.events, self.end, (*self.assumed, (name, truth)))


def paths(region: Region, wanted: Wanted, repeat: int = 1) -> list[Path]:
    """Ways through `region`; loops in it run `repeat` times. Ways that end in an exception are left out."""
    found = _run(region.children, [Path()], wanted, repeat)
    return [p for p in found if p.end != "raise"]


def _run(children: Iterable[Region | Event], ways: list[Path], wanted: Wanted, repeat: int) -> list[Path]:
    for child in children:
        going = [w for w in ways if not w.end]
        if not going:
            break
        ended = [w for w in ways if w.end]
        if isinstance(child, Event):
            if child.fn.startswith("flow."):
                going = [w.then(child, child.fn[5:]) for w in going]
            elif wanted(child):
                going = [w.then(child) for w in going]
        elif _matters(child, wanted):
            going = _enter(child, going, wanted, repeat)
        ways = _distinct(ended + going)
    return ways


def _enter(region: Region, ways: list[Path], wanted: Wanted, repeat: int) -> list[Path]:
    if region.kind == "branch":
        out: list[Path] = []
        for arm in region.children:
            if isinstance(arm, Region) and arm.cond is not None:
                into = [p for w in ways if (p := w.assuming(arm.cond, arm.truth)) is not None]
                out += _run(arm.children, into, wanted, repeat)
        return out
    if region.kind == "handler":
        return ways
    if region.kind in ("loop", "body"):
        for turn in range(repeat if region.kind == "loop" else 1):
            before = ways if not turn else [Path(w.events, w.end, ()) for w in ways]
            ways = _ended(_run(region.children, before, wanted, repeat), ("continue", "break") if region.kind == "loop" else ("continue",))
        return ways
    ways = _run(region.children, ways, wanted, repeat)
    return _ended(ways, ("return",)) if region.kind == "call" else ways


def _ended(ways: list[Path], ends: tuple[str, ...]) -> list[Path]:
    return [Path(w.events, "", w.assumed) if w.end in ends else w for w in ways]


def _matters(region: Region, wanted: Wanted) -> bool:
    return any(wanted(e) or e.fn.startswith("flow.") for e in region.events())


def _distinct(ways: list[Path]) -> list[Path]:
    if len(ways) < 2:
        return ways
    seen = {(tuple(e.index for e in w.events), w.end, w.assumed): w for w in ways}
    return list(seen.values())[:LIMIT]
