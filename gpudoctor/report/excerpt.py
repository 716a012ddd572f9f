"""The source lines around a finding."""

from __future__ import annotations

from pathlib import Path

from rich.syntax import Syntax

from gpudoctor.model import Location
from gpudoctor.report.plain import plain

MAX_BYTES = 5_000_000


def excerpt(place: Location, around: int = 1) -> Syntax | None:
    """Return the lines around `place`, that one marked, or None if the file cannot be read."""
    path = Path(place.path)
    try:
        if path.suffix not in (".py", ".cu", ".cuh", ".pyi") or path.stat().st_size > MAX_BYTES:
            return None
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    if not 1 <= place.line <= len(lines):
        return None
    first, last = max(1, place.line - around), min(len(lines), place.line + around)
    return Syntax(
        "\n".join(plain(line, 300) for line in lines[first - 1 : last]), "python" if path.suffix.startswith(".py") else "cuda",
        line_numbers=True, start_line=first, highlight_lines={place.line}, theme="ansi_dark", background_color="default", word_wrap=True,
    )
