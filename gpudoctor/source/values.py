"""Abstract values: nodes of a data-flow graph that the interpreter builds and rules walk.

A value knows how it came to be (`op`, `name`, `args`) and what it is (`kind`). Joins of branches are `ite`
(condition, then, else), values carried by a loop are `phi` (before the loop, after each iteration).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpudoctor.source.events import Event, Region

_ids = count(1)
_JOINS = ("ite", "phi", "or", "and")


class Value:
    """One abstract value; identity is object identity."""

    __slots__ = ("_key", "args", "event", "kind", "kwargs", "name", "node", "op", "region", "target", "uid")

    def __init__(self, op: str, args: tuple[Value, ...] = (), name: Any = None, kind: str = "", node: ast.AST | None = None,
                 kwargs: dict[str, Value] | None = None, target: Any = None) -> None:
        self.op, self.args, self.name, self.kind, self.node = op, args, name, kind, node
        self.kwargs: dict[str, Value] = kwargs or {}
        self.target = target
        self.region: Region | None = None
        self.event: Event | None = None
        self.uid = next(_ids)
        self._key: Any = None

    def __repr__(self) -> str:
        return f"<{self.op} {self.name or ''} {self.kind} #{self.uid}>"

    @property
    def is_const(self) -> bool:
        return self.op == "const"

    def inputs(self) -> Iterator[Value]:
        """Everything this value was computed from."""
        yield from self.args
        yield from self.kwargs.values()


def const(value: Any, node: ast.AST | None = None) -> Value:
    return Value("const", name=value, node=node, kind="str" if isinstance(value, str) else "")


NONE = const(None)


def alternatives(value: Value, limit: int = 24) -> list[Value]:
    """What the value may be once joins are opened."""
    if value.op not in _JOINS:
        return [value]
    out: list[Value] = []
    seen: set[int] = set()
    stack = [value]
    while stack and len(out) < limit:
        v = stack.pop()
        if v.uid in seen:
            continue
        seen.add(v.uid)
        if v.op == "ite":
            stack += (v.args[2], v.args[1])
        elif v.op in ("phi", "or", "and"):
            stack += reversed(v.args)
        else:
            out.append(v)
    return out


def is_kind(value: Value | None, *kinds: str) -> bool:
    """True if the value may be of one of the kinds."""
    if value is None:
        return False
    if value.op not in _JOINS:
        return value.kind in kinds
    return any(a.kind in kinds for a in alternatives(value))


def of_kind(value: Value | None, *kinds: str) -> Value | None:
    """The first alternative of one of the kinds."""
    if value is None:
        return None
    return next((a for a in alternatives(value) if a.kind in kinds), None)


def same(a: Value | None, b: Value | None) -> bool:
    """True if both may be the same object."""
    if a is None or b is None:
        return False
    ours = {v.uid for v in alternatives(a)}
    return any(v.uid in ours for v in alternatives(b))


def const_of(value: Value | None, default: Any = None) -> Any:
    """The constant behind the value; `default` if it is not one for sure."""
    if value is None:
        return default
    found = alternatives(value)
    if all(v.op == "const" for v in found):
        names = [v.name for v in found]
        if names and all(type(n) is type(names[0]) and n == names[0] for n in names):
            return names[0]
    return default


def literal(value: Value | None) -> bool:
    """True if every alternative is a constant."""
    return value is not None and all(v.op == "const" for v in alternatives(value))


def ancestors(value: Value, limit: int = 600, stop: Callable[[Value], bool] | None = None) -> Iterator[Value]:
    """The value and all it was computed from, nearest first; `stop` says where not to go on."""
    seen = {value.uid}
    queue = [value]
    at = 0
    while at < len(queue) and at < limit:
        v = queue[at]
        at += 1
        yield v
        if stop is not None and stop(v):
            continue
        for child in v.inputs():
            if child.uid not in seen:
                seen.add(child.uid)
                queue.append(child)


def depends_on(value: Value | None, test: Callable[[Value], bool], limit: int = 600) -> bool:
    return value is not None and any(test(v) for v in ancestors(value, limit))


def key(value: Value) -> Any:
    """Equal keys mean equal values in one iteration: pure expressions compare by structure, all else by identity."""
    if value._key is None:
        value._key = ("#", value.uid)
        if value.op == "const":
            value._key = ("const", type(value.name).__name__, repr(value.name))
        elif value.op in ("bin", "cmp", "not", "neg", "or", "and", "len", "lib", "env") and len(value.args) < 8:
            value._key = (value.op, value.name, tuple(key(a) for a in value.args))
        elif value.op == "call" and value.kind in ("rank", "world", "flag") and not value.args:
            value._key = ("call", value.name)
    return value._key


def negated(cond: Value) -> Value:
    return cond.args[0] if cond.op == "not" else Value("not", (cond,))
