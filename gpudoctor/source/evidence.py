"""Evidence from source places, with the line's text (for fingerprints) and edits that `--fix` may apply."""

from __future__ import annotations

import ast
from typing import Any

from gpudoctor.model import Confidence, Evidence, Location, Severity
from gpudoctor.source.events import Event
from gpudoctor.source.project import Module


def at(event: Event, group: str = "", severity: Severity | None = None, confidence: Confidence | None = None,
       edit: dict[str, Any] | None = None, **values: Any) -> Evidence:
    """Evidence at an event."""
    return at_node(event.module, event.node, group, severity, confidence, edit, **values)


def at_node(module: Module, node: ast.AST, group: str = "", severity: Severity | None = None, confidence: Confidence | None = None,
            edit: dict[str, Any] | None = None, **values: Any) -> Evidence:
    """Evidence at a piece of syntax."""
    return _made(module, module.location(node), getattr(node, "lineno", 1), group, severity, confidence, edit, values)


def at_line(module: Module, line: int, group: str = "", severity: Severity | None = None, confidence: Confidence | None = None, **values: Any) -> Evidence:
    """Evidence at a line of a module's text."""
    return _made(module, module.at(line), line, group, severity, confidence, None, values)


def _made(module: Module, place: Location, line: int, group: str, severity: Severity | None, confidence: Confidence | None,
          edit: dict[str, Any] | None, values: dict[str, Any]) -> Evidence:
    values["source_line"] = text_at(module, line)
    if edit is not None and module.places is None and not module.offset:
        values["edit"] = edit | {"path": module.path}
    return Evidence(location=place, group=group, severity=severity, confidence=confidence, values=values)


def text_at(module: Module, line: int) -> str:
    """A line's text, stripped."""
    lines = module.__dict__.get("_lines")
    if lines is None:
        lines = module.__dict__["_lines"] = module.text.split("\n")
    return str(lines[line - 1]).strip() if 0 < line <= len(lines) else ""


def insert_before(node: ast.AST, text: str) -> dict[str, Any]:
    """An edit that puts a statement on a line of its own before `node`'s statement."""
    return {"kind": "insert", "line": getattr(node, "lineno", 1), "text": text}


def insert_first(loop: ast.AST, text: str) -> dict[str, Any]:
    """An edit that puts a statement first into a block."""
    return {"kind": "insert", "line": getattr(loop, "body")[0].lineno, "text": text}  # noqa: B009


def delete_statement(node: ast.AST) -> dict[str, Any]:
    """An edit that removes the lines of a statement that stands alone on them."""
    return {"kind": "delete", "line": getattr(node, "lineno", 1), "end_line": getattr(node, "end_lineno", 1)}


def replace(node: ast.AST, text: str) -> dict[str, Any]:
    """An edit that puts `text` in place of `node`; columns count bytes, as in `ast`."""
    return {"kind": "replace", "line": getattr(node, "lineno", 1), "column": getattr(node, "col_offset", 0), "end_line": getattr(node, "end_lineno", 1),
            "end_column": getattr(node, "end_col_offset", 0), "text": text}
