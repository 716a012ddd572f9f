"""Safe fixes: edits that findings carry, applied to whole files from the bottom up, or shown as a diff."""

from __future__ import annotations

import ast
import difflib
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor.model import Finding
from gpudoctor.source.files import Unreadable, decode

_ONE_LINER = re.compile(r"\s*(if|elif|else|for|while|with|try|except|finally)\b.*:\s*[^\s#]")


@dataclass(frozen=True, slots=True)
class Fixed:
    """A file before and after its fixes, and how many edits were made."""

    path: str
    before: str
    after: str
    edits: int
    encoding: str

    def diff(self) -> str:
        """A unified diff."""
        return "".join(difflib.unified_diff(self.before.splitlines(True), self.after.splitlines(True), f"a/{self.path.lstrip('/')}", f"b/{self.path.lstrip('/')}"))

    def write(self) -> None:
        Path(self.path).write_bytes(self.after.encode(self.encoding))


def fixes_for(findings: Iterable[Finding]) -> list[Fixed]:
    """Apply the findings' edits in memory; edits that overlap, and files that would no longer parse, are left out."""
    by_path: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for finding in findings:
        edit = finding.values.get("edit")
        if isinstance(edit, dict):
            by_path[str(edit["path"])].append(edit)
    fixed = (_fix_file(path, edits) for path, edits in sorted(by_path.items()))
    return [f for f in fixed if f is not None]


def _fix_file(path: str, edits: list[dict[str, Any]]) -> Fixed | None:
    try:
        raw = Path(path).read_bytes()
        before = decode(raw)
    except (OSError, Unreadable):
        return None
    encoding = "utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "utf-8"
    if before.encode(encoding) != raw:
        return None
    lines = before.split("\n")
    made, floor = 0, len(lines) + 1
    for edit in sorted(edits, key=lambda e: (-int(e["line"]), -int(e.get("column", 0)))):
        last = int(edit.get("end_line", edit["line"]))
        if last >= floor:
            continue
        changed = _apply(lines, edit)
        if changed is not None:
            lines, made, floor = changed, made + 1, int(edit["line"])
    after = "\n".join(lines)
    if not made or not _parses(after):
        return None
    return Fixed(path, before, after, made, encoding)


def _apply(lines: list[str], edit: dict[str, Any]) -> list[str] | None:
    first, last = int(edit["line"]) - 1, int(edit.get("end_line", edit["line"])) - 1
    if edit["kind"] == "insert":
        head = lines[first]
        indent = head[: len(head) - len(head.lstrip())]
        if _ONE_LINER.match(head):
            return None
        return [*lines[:first], indent + str(edit["text"]), *lines[first:]]
    if edit["kind"] == "delete":
        rest = [*lines[:first], *lines[last + 1:]]
        if _parses("\n".join(rest)):
            return rest
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        return [*lines[:first], indent + "pass", *lines[last + 1:]]
    start = lines[first].encode()[: int(edit["column"])].decode("utf-8", "replace")
    end = lines[last].encode()[int(edit["end_column"]):].decode("utf-8", "replace")
    return [*lines[:first], start + str(edit["text"]) + end, *lines[last + 1:]]


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True
