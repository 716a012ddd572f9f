"""Which names a piece of syntax binds, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


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
            yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


class Stored:
    """Names and attributes stored in some statements, nested scopes left out."""

    __slots__ = ("attributes", "names")

    def __init__(self, statements: Iterable[ast.AST]) -> None:
        self.names: set[str] = set()
        self.attributes: set[str] = set()
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


def stored_attributes(tree: ast.AST) -> set[str]:
    """Attributes assigned anywhere but in `__init__`."""
    found: set[str] = set()
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        stack.extend(ast.iter_child_nodes(node))
    return found


def is_generator(function: ast.AST) -> bool:
    """True if the function's own body yields."""
    stack = list(getattr(function, "body", ()))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, _SCOPES):
            stack.extend(ast.iter_child_nodes(node))
    return False
