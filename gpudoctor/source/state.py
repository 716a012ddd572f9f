"""The interpreter's memory: one store with a journal, so that branches can be tried, undone and joined."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any

from gpudoctor.source.events import Event, Region
from gpudoctor.source.project import Module
from gpudoctor.source.scopes import Stored, Stores
from gpudoctor.source.values import Value, alternatives, const_of

Key = tuple[int, str]
_frames = count(1)


class Function:
    """A function of the project, with the frame it was defined in and the class it belongs to."""

    __slots__ = ("closure", "module", "node", "owner")

    def __init__(self, node: Any, module: Module, closure: Frame | None = None, owner: Class | None = None) -> None:
        self.node, self.module, self.closure, self.owner = node, module, closure, owner

    @property
    def name(self) -> str:
        return str(getattr(self.node, "name", "<lambda>"))

    def decorators(self) -> set[str]:
        """Last names of its decorators."""
        found = set()
        for d in getattr(self.node, "decorator_list", ()):
            d = d.func if isinstance(d, ast.Call) else d
            found.add(d.attr if isinstance(d, ast.Attribute) else getattr(d, "id", ""))
        return found


class Class:
    """A class of the project: its methods, class attributes and resolved bases."""

    __slots__ = ("attributes", "bases", "closure", "kind", "methods", "module", "node")

    def __init__(self, node: ast.ClassDef, module: Module, bases: Sequence[Value], closure: Frame | None) -> None:
        self.node, self.module, self.bases, self.closure = node, module, tuple(bases), closure
        self.methods: dict[str, Any] = {}
        self.attributes: dict[str, ast.expr] = {}
        self.kind = ""
        for s in node.body:
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.methods[s.name] = s
            elif isinstance(s, ast.Assign):
                self.attributes |= {t.id: s.value for t in s.targets if isinstance(t, ast.Name)}
            elif isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name) and s.value is not None:
                self.attributes[s.target.id] = s.value

    def ancestry(self) -> list[Class]:
        """The class and the project's classes it inherits from."""
        out: list[Class] = []
        queue: list[Class] = [self]
        while queue and len(out) < 20:
            c = queue.pop(0)
            if c not in out:
                out.append(c)
                queue += [b.target for v in c.bases for b in alternatives(v) if b.op == "class"]
        return out

    def method(self, name: str, after: Class | None = None) -> Function | None:
        """The method of that name; `after` starts behind that class, as `super()` does."""
        line = self.ancestry()
        if after is not None and after in line:
            line = line[line.index(after) + 1:]
        for c in line:
            if name in c.methods:
                return Function(c.methods[name], c.module, c.closure, c)
        return None

    def library_bases(self) -> set[str]:
        """Names of library classes among all bases."""
        return {str(a.name) for c in self.ancestry() for v in c.bases for a in alternatives(v) if a.op == "lib"}


class Frame:
    """One call in progress."""

    __slots__ = ("cls", "conds", "function", "globals", "id", "loops", "module", "on_yield", "parent", "returns", "self_value", "waiting")

    def __init__(self, module: Module, function: Function | None = None, parent: Frame | None = None) -> None:
        self.id = -next(_frames)
        self.module, self.function, self.parent = module, function, parent
        self.cls: Class | None = function.owner if function else None
        self.globals: set[str] = set()
        self.conds = 0
        self.loops: list[tuple[int, list[Any]]] = []
        self.returns: list[tuple[Value, list[tuple[Value, bool]]]] = []
        self.on_yield: Callable[[Value], str] | None = None
        self.waiting: list[tuple[int, Stored]] = []
        self.self_value: Value | None = None


class State:
    """Store, journal, current region and frame."""

    def __init__(self, module: Module, budget: int) -> None:
        self.module = module
        self.store: dict[Key, Value] = {}
        self.journal: list[tuple[Key, Value | None]] = []
        self.heap: dict[str, set[Key]] = {}
        self._pending: list[Module] = []
        self._stores: list[Stores] = []
        self._stored_by: dict[tuple[int, int], set[str]] = {}
        self.carried: list[list[Key]] = []
        self.touched: set[int] = set()
        self.conds: list[tuple[Value, bool]] = []
        self.budget = budget
        self.events = 0
        self.reached: set[int] = set()
        self.frame = Frame(module)
        self.region = Region("root", module.tree, module, None)

    def touch(self, module: Module) -> None:
        """Note that code of `module` takes part: its attributes may change in loops."""
        if id(module) not in self.touched and module.tree is not None:
            self.touched.add(id(module))
            self._pending.append(module)

    @property
    def stores(self) -> list[Stores]:
        """What the modules that take part store, gathered when first asked for."""
        while self._pending:
            module = self._pending.pop()
            known: Stores | None = module.__dict__.get("_stores")
            if known is None and module.tree is not None:
                known = module.__dict__["_stores"] = Stores(module.tree)
            if known is not None:
                self._stores.append(known)
        return self._stores

    @property
    def mutable(self) -> set[str]:
        """Attributes stored outside `__init__`."""
        return set().union(*(s.attributes for s in self.stores))

    def stored_by(self, names: set[str]) -> set[str]:
        """Attributes that functions of these names store, and functions that those call."""
        memo = (id(names), len(self.stores))
        if memo in self._stored_by:
            return self._stored_by[memo]
        found: set[str] = set()
        todo, seen = list(names), set(names)
        while todo:
            name = todo.pop()
            for stores in self.stores:
                entry = stores.by_name.get(name)
                if entry is not None:
                    found |= entry[0]
                    todo += entry[1] - seen
                    seen |= entry[1]
        self._stored_by[memo] = found
        return found

    def write(self, key: Key, value: Value) -> None:
        self.journal.append((key, self.store.get(key)))
        self.store[key] = value
        if key[0] > 0:
            self.heap.setdefault(key[1], set()).add(key)

    def changes(self, mark: int) -> dict[Key, Value]:
        return {k: self.store[k] for k, _ in self.journal[mark:] if k in self.store}

    def undo(self, mark: int) -> None:
        for key, old in reversed(self.journal[mark:]):
            if old is None:
                self.store.pop(key, None)
            else:
                self.store[key] = old
        del self.journal[mark:]

    def emit(self, fn: str, node: ast.AST, recv: Value | None = None, args: tuple[Value, ...] = (),
             kwargs: dict[str, Value] | None = None, result: Value | None = None) -> Event:
        """Append an event to the current region."""
        event = Event(fn, node, self.frame.module, self.region, self.events, recv, args, kwargs, result)
        self.events += 1
        if result is not None and result.event is None and result.op == "call":
            result.event = event
        return event

    def enter(self, kind: str, node: ast.AST | None) -> Region:
        """Open a region below the current one; leave it with `leave`."""
        region = Region(kind, node, self.frame.module, self.region)
        region.first = self.events
        self.region = region
        return region

    def leave(self, region: Region) -> None:
        region.last = self.events
        assert region.parent is not None
        self.region = region.parent

    def branch(self, node: ast.AST, cond: Value, arms: Iterable[Callable[[], str]]) -> str:
        """Try each arm (then, else) from the same state, and join what they leave; return how the whole ends."""
        decided = truth_of(cond)
        runs = list(arms)
        if decided is not None:
            return runs[0]() if decided else runs[1]()
        outer = self.enter("branch", node)
        outer.cond = cond
        mark = len(self.journal)
        ends: list[tuple[str, dict[Key, Value]]] = []
        for truth, run in zip((True, False), runs, strict=True):
            arm = self.enter("arm", node)
            arm.cond, arm.truth = cond, truth
            self.conds.append((cond, truth))
            end = run()
            self.conds.pop()
            self.leave(arm)
            ends.append((end, self.changes(mark)))
            self.undo(mark)
        self.leave(outer)
        if not any(isinstance(a, Region) and a.children for a in outer.children):
            self.region.children.pop()
        return self._join(cond, *ends)

    def _join(self, cond: Value, then: tuple[str, dict[Key, Value]], other: tuple[str, dict[Key, Value]]) -> str:
        (end_a, a), (end_b, b) = then, other
        if end_a and end_b:
            return end_a if end_a == end_b else "return"
        if end_a or end_b:
            for key, left in (b if end_a else a).items():
                self.write(key, left)
            return ""
        for key in a | b:
            before = self.store.get(key)
            va, vb = a.get(key, before), b.get(key, before)
            value: Value | None
            if va is None or vb is None:
                value = va or vb
            else:
                value = va if va is vb else Value("ite", (cond, va, vb))
            if value is not None:
                self.write(key, value)
        return ""


def truth_of(value: Value) -> bool | None:
    """Whether a condition is decided by constants alone."""
    if value.op == "const":
        return bool(value.name)
    if value.op in ("tuple", "list", "dict"):
        return None
    if value.op == "not":
        inner = truth_of(value.args[0])
        return None if inner is None else not inner
    if value.op in ("and", "or"):
        truths = [truth_of(a) for a in value.args]
        if value.op == "and":
            return False if False in truths else True if all(truths) else None
        return True if True in truths else False if all(t is False for t in truths) else None
    found = const_of(value, _NO)
    return None if found is _NO else bool(found)


_NO = object()


def folded(value: Value, conds: list[tuple[Value, bool]], rest: Value) -> Value:
    """`value` where all `conds` hold, else `rest`."""
    if not conds:
        return value
    if value is rest:
        return rest
    out = value
    for cond, truth in reversed(conds):
        out = Value("ite", (cond, out, rest) if truth else (cond, rest, out))
    return out
