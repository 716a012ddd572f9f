"""A capture names files as the recording machine did, and Kineto functions by their first line: find the file here, and the whole function."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import takewhile
from pathlib import Path

from gpudoctor.model import Evidence
from gpudoctor.source_text import raw_source


def widen(evidence: Iterable[Evidence], files: Iterable[str]) -> None:
    """Let what a capture saw in a function point at that function, first line to last, in the one of `files` that is meant."""
    _functions.cache_clear()
    paths = sorted(set(files))
    evidence, moved = list(evidence), dict[str, str]()
    for item in evidence:
        place, function = item.location, item.values.get("func")
        if not item.traced or place is None or not function:
            continue
        line = place.line
        ends = [p for p in paths if p == place.path or p.endswith("/" + place.path)] or _elsewhere(place.path, str(function), line, paths)
        path = moved.setdefault(place.path, ends[0]) if len(ends) == 1 else place.path
        item.location = replace(place, path=path, end_line=place.end_line or _end(path, str(function), line))
    for item in evidence:
        if item.traced and item.location is not None and item.location.path in moved:
            item.location = replace(item.location, path=moved[item.location.path])


def _elsewhere(recorded: str, function: str, line: int, paths: list[str]) -> list[str]:
    """Those of `paths` that a file of another machine can be: the same name, and that function around that line; of several the most alike."""
    if not os.path.isabs(recorded) or os.path.exists(recorded):
        return []
    fitting = [p for p in paths if os.path.basename(p) == os.path.basename(recorded) and _around(p, function, line)]
    alike = [sum(1 for _ in takewhile(lambda ab: ab[0] == ab[1], zip(reversed(Path(p).parts), reversed(Path(recorded).parts), strict=False))) for p in fitting]
    return [p for p, n in zip(fitting, alike, strict=True) if n == max(alike)]


def _end(path: str, function: str, line: int) -> int | None:
    """The last line of the innermost function of that name around `line`; None where the source cannot tell."""
    return min((end for _, end in _around(path, function, line)), default=None)


def _around(path: str, function: str, line: int) -> list[tuple[int, int]]:
    """First and last lines of the functions of that name around `line`."""
    return [(first, end) for name, first, end in _functions(path) if name == function.rpartition(".")[2] and first <= line <= end]


@cache
def _functions(path: str) -> tuple[tuple[str, int, int], ...]:
    raw = raw_source(path)
    try:
        tree = ast.parse(raw)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    if not raw:
        return ()
    found = [("<module>", 1, max((n.end_lineno or 1 for n in tree.body), default=1))]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            found.append((node.name, first, node.end_lineno or node.lineno))
    return tuple(found)
