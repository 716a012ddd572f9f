"""Places in the user's source: paths as the user would type them, and fingerprints that survive moved lines."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

from gpudoctor.model import Evidence, Finding
from gpudoctor.source_text import lines_of_source

_lines = cache(lines_of_source)


def shorten(evidence: Iterable[Evidence], base: Path | None = None) -> None:
    """Make paths below `base` (the working folder by default) relative to it, so that all detectors name a file alike."""
    root = str(base or Path.cwd())
    for item in evidence:
        if item.location is not None:
            item.location = replace(item.location, path=_relative(item.location.path, root))


def _relative(path: str, root: str) -> str:
    full = os.path.normpath(os.path.join(root, path))
    return os.path.relpath(full, root) if full == root or full.startswith(root.rstrip(os.sep) + os.sep) else path


def mark(findings: Iterable[Finding]) -> None:
    """Give each finding with a place a fingerprint from rule, path, the line's text and how often that text came before."""
    _lines.cache_clear()
    seen: dict[tuple[str, str, str], int] = defaultdict(int)
    placed = [(f, f.location) for f in findings if f.location is not None]
    for finding, place in sorted(placed, key=lambda p: (p[1].path, p[1].line, p[0].rule)):
        key = (finding.rule, place.path, source_text(Path(place.path), place.line))
        digest = hashlib.sha256("\0".join((*key, str(seen[key]))).encode("utf-8", "replace"))
        seen[key] += 1
        finding.fingerprint = digest.hexdigest()[:16]


def source_text(path: Path, line: int) -> str:
    """The text of a source line, white space folded; empty where it cannot be read."""
    lines = _lines(str(path))
    return " ".join(lines[line - 1].split()) if 1 <= line <= len(lines) else ""
