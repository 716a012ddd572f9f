"""Which loop of a source file a line stands in."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

MAX_BYTES = 1 << 20


def loop_around(path: str, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost `for` or `while` statement around `line`; None if there is none, or no source."""
    inside = [(first, last) for first, last in _loops(path) if first <= line <= last]
    return max(inside, default=None)


@cache
def _loops(path: str) -> tuple[tuple[int, int], ...]:
    try:
        file = Path(path)
        if file.stat().st_size > MAX_BYTES:
            return ()
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError):
        return ()
    return tuple((n.lineno, n.end_lineno or n.lineno) for n in ast.walk(tree) if isinstance(n, ast.For | ast.AsyncFor | ast.While))
