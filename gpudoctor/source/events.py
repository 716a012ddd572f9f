"""What a program does, in order: a tree of regions with events at its leaves."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpudoctor.model import Location
from gpudoctor.source.values import Value

if TYPE_CHECKING:
    from gpudoctor.source.project import Module

LEAVES = ("continue", "break", "return", "raise")


class Region:
    """A stretch of the program.

    `kind` is root, loop, branch, arm, with, call, body (of a loop, run at a generator's yield), try, handler or finally.
    Arms hold `cond` and `truth`; a loop holds what it iterates over in `value` and its carried values in `phis`;
    a with holds its context in `value`.
    """

    __slots__ = ("children", "cond", "first", "index_value", "item", "kind", "last", "module", "node", "parent", "phis", "truth", "value")

    def __init__(self, kind: str, node: ast.AST | None, module: Module, parent: Region | None) -> None:
        self.kind, self.node, self.module, self.parent = kind, node, module, parent
        self.children: list[Region | Event] = []
        self.cond: Value | None = None
        self.truth = True
        self.value: Value | None = None
        self.item: Value | None = None
        self.index_value: Value | None = None
        self.phis: list[Value] = []
        self.first = self.last = 0
        if parent is not None:
            parent.children.append(self)

    def __repr__(self) -> str:
        return f"<{self.kind} line {getattr(self.node, 'lineno', '-')}>"

    def events(self) -> Iterator[Event]:
        """All events below, in program order."""
        stack: list[Region | Event] = [*reversed(self.children)]
        while stack:
            child = stack.pop()
            if child.__class__ is Event:
                yield child
            else:
                stack.extend(reversed(child.children))  # type: ignore[union-attr]

    def regions(self) -> Iterator[Region]:
        """This region and all below, outer ones first."""
        stack: list[Region] = [self]
        while stack:
            region = stack.pop()
            yield region
            stack.extend(c for c in reversed(region.children) if isinstance(c, Region))

    def around(self) -> Iterator[Region]:
        """This region and those around it, inside out."""
        here: Region | None = self
        while here is not None:
            yield here
            here = here.parent

    def holds(self, event: Event) -> bool:
        """True if the event lies in this region."""
        return self.first <= event.index < self.last and any(r is self for r in event.region.around())


class Event:
    """One call, store or jump. `fn` names what is done, such as `torch.load` or `optimizer.step`; jumps are `flow.return` and so on."""

    __slots__ = ("args", "fn", "index", "kwargs", "module", "node", "recv", "region", "result")

    def __init__(self, fn: str, node: ast.AST, module: Module, region: Region, index: int, recv: Value | None = None,
                 args: tuple[Value, ...] = (), kwargs: dict[str, Value] | None = None, result: Value | None = None) -> None:
        self.fn, self.node, self.module, self.region, self.index = fn, node, module, region, index
        self.recv, self.args, self.kwargs, self.result = recv, args, kwargs or {}, result
        region.children.append(self)

    def __repr__(self) -> str:
        return f"<{self.fn} line {self.line}>"

    @property
    def line(self) -> int:
        return int(getattr(self.node, "lineno", 0))

    @property
    def location(self) -> Location:
        return self.module.location(self.node)

    def arg(self, position: int, *names: str) -> Value | None:
        """The argument by name, or by position where none of the names is given."""
        for name in names:
            if name in self.kwargs:
                return self.kwargs[name]
        return self.args[position] if 0 <= position < len(self.args) else None

    def given(self) -> Iterator[Value]:
        """Receiver and arguments, containers opened one level."""
        if self.recv is not None:
            yield self.recv
        for value in (*self.args, *self.kwargs.values()):
            yield value
            if value.op in ("tuple", "list", "dict", "star"):
                yield from value.args

    def loops(self) -> list[Region]:
        """Loops around it, innermost first."""
        return [r for r in self.region.around() if r.kind == "loop"]

    def within(self, kind: str) -> Iterator[Region]:
        return (r for r in self.region.around() if r.kind == kind)


def text_of(node: Any) -> str:
    """The source of a small expression, for messages."""
    try:
        text = ast.unparse(node)
    except (ValueError, RecursionError, AttributeError):
        return "?"
    return text if len(text) <= 60 else text[:57] + "..."
