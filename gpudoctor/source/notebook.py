"""Notebooks as Python: the code cells one after the other, and which line came from which cell."""

from __future__ import annotations

import json
import re

from gpudoctor.source.files import Unreadable

_MAGIC = re.compile(r"^\s*(%|!|\?)|^\s*[\w.\[\]\"']+\?{1,2}\s*$")


def cells_to_python(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the joined code and, by its lines, (cell number from 1, line in the cell). Magics become `pass`."""
    try:
        document = json.loads(text)
        cells = document["cells"]
        language = document.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unreadable("not a notebook: its JSON has no cells") from None
    if language != "python":
        raise Unreadable(f"a notebook in {language}")
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        source = cell.get("source", "")
        code = ("".join(map(str, source)) if isinstance(source, list) else str(source)).split("\n")
        foreign = code[0].lstrip().startswith("%%") and not re.match(r"\s*%%(time|timeit|capture|prun)\b", code[0])
        for at, line in enumerate(code, 1):
            skip = foreign or _MAGIC.match(line)
            lines.append(line[: len(line) - len(line.lstrip())] + "pass" if skip and not foreign else "" if foreign else line)
            places.append((number, at))
    return "\n".join(lines) + "\n", places
