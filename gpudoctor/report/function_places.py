"""Kineto names a frame by its function's first line and by a path below `sys.path`: find the file and the whole function."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpudoctor.model import Evidence


def widen(evidence: Iterable[Evidence], files: Iterable[str]) -> None:
    """Let what a capture saw in a function point at that function, first line to last, in the one of `files` that is meant."""
    _functions.cache_clear()
    paths = sorted(set(files))
    for item in evidence:
        place, function = item.location, item.values.get("func")
        if not item.traced or place is None or not function:
            continue
        ends = [p for p in paths if p == place.path or p.endswith("/" + place.path)]
        path = ends[0] if len(ends) == 1 else place.path
        item.location = replace(place, path=path, end_line=place.end_line or _end(path, str(function), place.line))


def _end(path: str, function: str, line: int) -> int | None:
    """The last line of the innermost function of that name around `line`; None where the source cannot tell."""
    around = [end for name, first, end in _functions(path) if name == function.rpartition(".")[2] and first <= line <= end]
    return min(around, default=None)


@cache
def _functions(path: str) -> tuple[tuple[str, int, int], ...]:
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    found = [("<module>", 1, max((n.end_lineno or 1 for n in tree.body), default=1))]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found.append((node.name, first, node.end_lineno or node.lineno))
    return tuple(found)
