"""The source lines around a finding, in colour."""

from __future__ import annotations

from rich.syntax import Syntax

from gpudoctor.model import Location
from gpudoctor.report.source_lines import source_lines


def excerpt(place: Location, around: int = 1) -> Syntax | None:
    """Return the lines around `place`, that one marked, or None if there are none to show."""
    lines = source_lines(place, around)
    if not lines:
        return None
    return Syntax(
        "\n".join(text for _, text in lines), "python" if ".py" in place.path else "cuda", line_numbers=True, start_line=lines[0][0],
        highlight_lines={place.line}, theme="ansi_dark", background_color="default", word_wrap=True,
    )
