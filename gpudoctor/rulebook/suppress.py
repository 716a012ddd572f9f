"""Findings that the user has silenced: `# gpudoctor: ignore[slug] reason`, and per-file ignores of the config."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch
from functools import cache

from gpudoctor.model import Finding
from gpudoctor.source_text import lines_of_source

_MARK = re.compile(r"(?:#|//)\s*gpudoctor:\s*ignore(?:\[([^\]]*)\])?")


def split_suppressed(
    findings: Iterable[Finding],
    per_file: Mapping[str, tuple[str, ...]] | None = None,
    read: Callable[[str], list[str]] | None = None,
) -> tuple[list[Finding], list[Finding]]:
    """Return (kept, suppressed). `read` gives a file's lines; by default from disk, empty if unreadable."""
    lines_of = read or cache(lines_of_source)
    kept: list[Finding] = []
    silenced: list[Finding] = []
    for finding in findings:
        (silenced if _is_silenced(finding, per_file or {}, lines_of) else kept).append(finding)
    return kept, silenced


def _is_silenced(finding: Finding, per_file: Mapping[str, tuple[str, ...]], lines_of: Callable[[str], list[str]]) -> bool:
    place = finding.location
    if place is None:
        return False
    file = place.path.partition(":cell ")[0]
    if any((fnmatch(file, pattern) or fnmatch(file, f"*/{pattern}")) and _named(finding, rules) for pattern, rules in per_file.items()):
        return True
    lines = lines_of(place.path)
    last = max(place.line, min(place.end_line or place.line, place.line + 20))
    return any(_marked(finding, lines, n) for n in range(place.line, last + 1)) or _marked(finding, lines, place.line - 1, alone=True)


def _marked(finding: Finding, lines: list[str], number: int, alone: bool = False) -> bool:
    if not 1 <= number <= len(lines):
        return False
    text = lines[number - 1]
    mark = _MARK.search(text)
    if mark is None or (alone and not text.lstrip().startswith(("#", "//"))):
        return False
    return mark[1] is None or _named(finding, [n.strip() for n in mark[1].split(",")])


def _named(finding: Finding, names: Iterable[str]) -> bool:
    return any(n in (finding.rule, finding.name) or (n.startswith("GD") and finding.rule.startswith(n)) for n in names)
