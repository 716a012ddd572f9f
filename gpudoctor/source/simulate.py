"""Run a training loop on paper: real counters, sample sizes, every choice that conditions leave open."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from gpudoctor.source.events import Event, Region
from gpudoctor.source.training import BACKWARDS, STEPS
from gpudoctor.source.values import Value, ancestors, key

SAMPLE, LONGEST = 4, 64
_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod, "==": operator.eq,
    "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "&": operator.and_, "|": operator.or_,
}
_OPEN = object()
MAX_ENTRIES = 6000


@dataclass(slots=True)
class Entry:
    """One event as it happened: the contexts it ran in, the iteration, and for stores the value."""

    event: Event
    contexts: tuple[Value, ...]
    turn: int
    stored: Any = None


@dataclass(slots=True)
class Run:
    """What happened under one set of choices; `turns` iterations."""

    entries: list[Entry]
    turns: int


def runs(loop: Region, extra: int = 0, turns: int | None = None) -> Iterator[Run]:
    """Simulate `loop` for three accumulation windows and `extra` turns (or `turns`), once for each set of open choices (16 sets at most)."""
    window, atoms = window_of(loop)
    if window is None:
        return
    turns = 3 * window + extra if turns is None else turns
    first = Simulation(loop, atoms, window, turns, {})
    first.run()
    names = list(first.asked)[:4]
    for truths in product((False, True), repeat=len(names)):
        simulation = Simulation(loop, atoms, window, turns, dict(zip(names, truths, strict=True)))
        yield Run(simulation.run(), turns)


def window_of(loop: Region) -> tuple[int | None, set[Any]]:
    """(micro-batches a window, keys of unknown numbers that stand for it); None if the window is too long to simulate."""
    atoms: set[Any] = set()
    numbers = [1]
    for region in loop.regions():
        sources = [region.cond] if region.kind == "branch" and region.cond is not None else []
        for source in sources:
            for v in ancestors(source, 80):
                if v.op == "bin" and v.name == "%":
                    _atoms(v.args[1], atoms, numbers)
        if region.kind == "with" and region.value is not None:
            for v in ancestors(region.value, 80):
                if v.op == "bin" and v.name == "%":
                    _atoms(v.args[1], atoms, numbers)
        if region.kind == "loop" and region is not loop and region.value is not None and any(e.fn in BACKWARDS for e in region.events()):
            for v in region.value.args if region.value.op == "call" and region.value.name == "builtins.range" else ():
                _atoms(v, atoms, numbers)
    for phi in loop.phis:
        for v in ancestors(phi, 60):
            if v.op == "bin" and v.name == "%":
                _atoms(v.args[1], atoms, numbers)
    if atoms:
        numbers.append(SAMPLE)
    small = [n for n in numbers if n <= LONGEST]
    return (max(small), atoms)


def _atoms(value: Value, atoms: set[Any], numbers: list[int]) -> None:
    if value.op == "const" and isinstance(value.name, int) and not isinstance(value.name, bool):
        numbers.append(value.name)
    elif value.op in ("param", "attr", "env", "unknown", "item", "call", "len") and value.kind == "":
        atoms.add(key(value))
    elif value.op in ("bin", "ite", "or", "phi"):
        for a in value.args:
            _atoms(a, atoms, numbers)


class Simulation:
    """One run under fixed choices."""

    def __init__(self, loop: Region, atoms: set[Any], window: int, turns: int, choices: dict[Any, bool]) -> None:
        self.loop, self.atoms, self.window, self.turns, self.choices = loop, atoms, window, turns, choices
        self.asked: dict[Any, None] = {}
        self.env: dict[int, Any] = {}
        self.entries: list[Entry] = []
        self.contexts: list[Value] = []
        self.turn = 0

    def run(self) -> list[Entry]:
        self._loop(self.loop, self.turns)
        return self.entries

    def _loop(self, region: Region, turns: int) -> str:
        for phi in region.phis:
            self.env[phi.uid] = self.value(phi.args[0])
        start = self.value(region.index_value.args[0]) if region.index_value is not None and region.index_value.args else 0
        for turn in range(turns):
            if region is self.loop:
                self.turn = turn
            if region.index_value is not None:
                self.env[region.index_value.uid] = start + turn if isinstance(start, int) else _OPEN
            end = self._children(region)
            if end in ("break", "return", "raise"):
                return "" if end == "break" else end
            after = {p.uid: self.value(p.args[1]) for p in region.phis if len(p.args) > 1}
            self.env |= after
            if len(self.entries) > MAX_ENTRIES:
                return "return"
        return ""

    def _children(self, region: Region) -> str:
        for child in region.children:
            if isinstance(child, Event):
                if child.fn.startswith("flow."):
                    return child.fn[5:]
                stored = self.value(child.args[1]) if child.fn == "setattr" else None
                self.entries.append(Entry(child, tuple(self.contexts), self.turn, stored))
            else:
                end = self._region(child)
                if end:
                    return end
        return ""

    def _region(self, region: Region) -> str:
        if region.kind == "branch":
            truth = self.truth(region.cond) if region.cond is not None else False
            arm = next((a for a in region.children if isinstance(a, Region) and a.truth is truth), None)
            return self._children(arm) if arm is not None else ""
        if region.kind == "loop":
            return self._loop(region, self._length(region))
        if region.kind == "with":
            context = self.value(region.value) if region.value is not None else None
            off = isinstance(context, Value) and "enabled" in context.kwargs and self.value(context.kwargs["enabled"]) is False
            self.contexts.append(_NOTHING if off else context if isinstance(context, Value) else region.value or _NOTHING)
            end = self._children(region)
            self.contexts.pop()
            return end
        if region.kind == "handler":
            return ""
        end = self._children(region)
        if (region.kind == "call" and end == "return") or (region.kind == "body" and end == "continue"):
            return ""
        return end

    def _length(self, region: Region) -> int:
        source = region.value
        if source is not None and source.op == "call" and source.name == "builtins.range":
            bounds = [self.value(a) for a in source.args]
            if all(isinstance(b, int) for b in bounds) and 0 < len(bounds) < 4:
                try:
                    return min(len(range(*bounds)), LONGEST)
                except (ValueError, TypeError):
                    return 1
        trains = any(e.fn in BACKWARDS for e in region.events())
        steps = any(e.fn in STEPS for e in region.events())
        return max(self.window, 2) if trains and not steps else 1

    def truth(self, cond: Value) -> bool:
        """The condition's truth: computed, else by choice."""
        found = self.value(cond)
        if isinstance(found, Value) or found is _OPEN:
            if cond.op == "not":
                return not self.truth(cond.args[0])
            if cond.op in ("and", "or"):
                truths = (self.truth(a) for a in cond.args)
                return all(truths) if cond.op == "and" else any(truths)
            name = key(cond)
            self.asked.setdefault(name)
            return self.choices.get(name, False)
        return bool(found)

    def value(self, v: Value, depth: int = 0) -> Any:
        """A number, truth or constant; a Value where it is an object; `_OPEN` where it is unknown."""
        if depth > 60:
            return _OPEN
        if v.op == "const":
            return v.name
        if v.uid in self.env:
            return self.env[v.uid]
        if v.op == "phi":
            return self.value(v.args[0], depth + 1)
        if v.op == "ite":
            return self.value(v.args[1] if self.truth(v.args[0]) else v.args[2], depth + 1)
        if v.op in ("bin", "cmp") and len(v.args) == 2:
            return self._operation(v, depth)
        if v.op == "not":
            inner = self.value(v.args[0], depth + 1)
            return _OPEN if inner is _OPEN or isinstance(inner, Value) else not inner
        if v.op in ("and", "or"):
            return self._boolean(v, depth)
        if v.op == "len" and v.args:
            return self._len(v)
        if v.op in ("param", "attr", "env", "unknown", "item", "call") and v.kind == "" and key(v) in self.atoms:
            return self.window if self.window > 1 else SAMPLE
        if v.op == "call" and v.name in ("builtins.bool", "builtins.max", "builtins.min") and v.args:
            parts = [self.value(a, depth + 1) for a in v.args]
            if all(isinstance(p, (int, float)) for p in parts):
                return bool(parts[0]) if v.name == "builtins.bool" else max(parts) if v.name == "builtins.max" and len(parts) > 1 else min(parts)
        return v

    def _len(self, v: Value) -> Any:
        if key(v) in self.atoms:
            return self.window
        source = self.loop.value
        inside = {a.uid for a in ancestors(source, 12)} if source is not None else set()
        return self.turns if v.args[0].uid in inside else v

    def _operation(self, v: Value, depth: int) -> Any:
        a, b = self.value(v.args[0], depth + 1), self.value(v.args[1], depth + 1)
        apply = _OPS.get(str(v.name))
        if v.name in ("is", "is not") and not isinstance(a, Value) and not isinstance(b, Value) and a is not _OPEN and b is not _OPEN:
            return (a is b) == (v.name == "is")
        if apply is None or isinstance(a, Value) or isinstance(b, Value) or a is _OPEN or b is _OPEN:
            return _OPEN
        try:
            return apply(a, b)
        except (TypeError, ZeroDivisionError, ValueError):
            return _OPEN

    def _boolean(self, v: Value, depth: int) -> Any:
        parts = [self.value(a, depth + 1) for a in v.args]
        known = [p for p in parts if not isinstance(p, Value) and p is not _OPEN]
        if v.op == "and" and any(not p for p in known):
            return False
        if v.op == "or" and any(known):
            return next(p for p in known if p)
        return known[-1] if len(known) == len(parts) else _OPEN


_NOTHING = Value("unknown", name="nothing")
