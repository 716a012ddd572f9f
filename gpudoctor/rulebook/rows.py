"""Rows of a table as text: a header line, then values; `-` is null.

A column `name` stands for `name_id`: the text is put into the table `name` (write blanks in it as `~`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpudoctor.tables import TABLES

_CONVERT: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "text": lambda v: v.replace("~", " "), "bool": lambda v: v == "true"}


def parse_rows(table: str, text: str) -> list[dict[str, Any]]:
    """Parse rows of canonical table `table`; KeyError or ValueError if a column or value does not fit."""
    lines = [line.split() for line in text.strip().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    header = lines[0] if lines else []
    columns = {h: None if _interned(table, h) else TABLES[table].column(h) for h in header}
    rows = []
    for values in lines[1:]:
        if len(values) != len(header):
            raise ValueError(f"{table}: row {' '.join(values)} does not fit {' '.join(header)}")
        rows.append({
            h: None if v == "-" else v.replace("~", " ") if (c := columns[h]) is None else _CONVERT[c.type](v)
            for h, v in zip(header, values, strict=True)
        })
    return rows


def intern_names(tables: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Replace `name` columns by `name_id` and fill the table `name`."""
    ids: dict[str, int] = {}
    out = {}
    for table, rows in tables.items():
        out[table] = [
            {("name_id" if _interned(table, k) else k): (ids.setdefault(v, len(ids)) if _interned(table, k) and v is not None else v) for k, v in row.items()}
            for row in rows
        ]
    if ids:
        out["name"] = [{"name_id": i, "text": t} for t, i in ids.items()]
    return out


def _interned(table: str, column: str) -> bool:
    return column == "name" and any(c.name == "name_id" for c in TABLES[table].columns) and table != "name"
