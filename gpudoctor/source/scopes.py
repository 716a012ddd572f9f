"""Which names a piece of syntax binds, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all below, in no particular order; what `ast.walk` does in half the time."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        for value in node.__dict__.values():
            if value.__class__ is list:
                stack += [v for v in value if isinstance(v, ast.AST)]
            elif isinstance(value, ast.AST):
                stack.append(value)


def top_level_bindings(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Names bound at module level, through `if`, `try` and `with`, and the statements that bind them."""
    found: dict[str, list[ast.stmt]] = {}
    for statement in _flat(tree.body):
        for name in _bound(statement):
            found.setdefault(name, []).append(statement)
    return found


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _flat(statement.body)
            yield from _flat(statement.orelse)
        elif isinstance(statement, (ast.Try, ast.With)):
            yield from _flat(statement.body)
            for handler in getattr(statement, "handlers", ()):
                yield from _flat(handler.body)
            yield from _flat(getattr(statement, "orelse", ()))
        else:
            yield statement


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or (alias.name.split(".")[0] if isinstance(statement, ast.Import) else alias.name)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            yield from (n.id for n in walk(target) if isinstance(n, ast.Name))


class Stored:
    """Names and attributes stored in some statements (nested scopes left out), and the names they call."""

    __slots__ = ("attributes", "called", "names")

    def __init__(self, statements: Iterable[ast.AST]) -> None:
        statements = list(statements)
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.called: set[str] = set().union(*(called_names(s) for s in statements)) | {"__next__", "__iter__", "__enter__", "__exit__", "forward", "__call__"}
        stack = list(statements)
        while stack:
            node = stack.pop()
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Store):
                    self.names.add(node.id)
                continue
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.attributes.add(node.attr)
            if isinstance(node, _SCOPES):
                continue
            stack.extend(ast.iter_child_nodes(node))


class Stores:
    """Which attributes the functions of a module store (`__init__` left out), and which names they call."""

    def __init__(self, tree: ast.AST) -> None:
        self.by_name: dict[str, tuple[set[str], set[str]]] = {}
        stack: list[tuple[ast.AST, tuple[set[str], set[str]] | None]] = [(tree, None)]
        while stack:
            node, into = stack.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                into = self.by_name.setdefault(node.name, (set(), set())) if node.name != "__init__" else None
            elif into is not None:
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    into[0].add(node.attr)
                elif isinstance(node, ast.Call):
                    into[1].add(node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", ""))
            for value in node.__dict__.values():
                if value.__class__ is list:
                    stack += [(v, into) for v in value if isinstance(v, ast.AST)]
                elif isinstance(value, ast.AST):
                    stack.append((value, into))
        self.attributes = set().union(*(a for a, _ in self.by_name.values()))


def called_names(node: ast.AST) -> set[str]:
    """Last names of all calls and of iterated or entered things below a node."""
    found = set()
    for inner in walk(node):
        if isinstance(inner, ast.Call):
            found.add(inner.func.attr if isinstance(inner.func, ast.Attribute) else getattr(inner.func, "id", ""))
    return found


def is_generator(function: ast.AST) -> bool:
    """True if the function's own body yields."""
    known = getattr(function, "_yields", None)
    if known is None:
        known = _yields(function)
        function._yields = known  # type: ignore[attr-defined]
    return bool(known)


def _yields(function: ast.AST) -> bool:
    stack = list(getattr(function, "body", ()))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, _SCOPES):
            stack.extend(ast.iter_child_nodes(node))
    return False
