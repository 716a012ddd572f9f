"""The source lines around a finding, as text."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.model import Location
from gpudoctor.report.plain import plain
from gpudoctor.source_text import lines_of_source

SUFFIXES = (".py", ".pyi", ".cu", ".cuh")


def source_lines(place: Location, around: int = 1) -> list[tuple[int, str]]:
    """Return (number, text) of the lines around `place`; empty if the file is no source or cannot be read."""
    lines = lines_of_source(place.path) if Path(place.path).suffix in SUFFIXES else []
    if not 1 <= place.line <= len(lines):
        return []
    first, last = max(1, place.line - around), min(len(lines), place.line + around)
    return [(n, plain(lines[n - 1], 300)) for n in range(first, last + 1)]
