"""How a table is described: typed columns, each with a unit and one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Type = Literal["int", "float", "text", "bool"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `choices` closes the set of texts; `unit` is empty for ids and counts."""

    name: str
    type: Type
    doc: str
    unit: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """One canonical table; every column may be null except those a rule's case sets."""

    name: str
    doc: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """Return the column of that name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name} has no column {name}")


def ints(spec: str) -> tuple[Column, ...]:
    """Parse `name: doc [unit]; …` into integer columns."""
    return _columns("int", spec)


def floats(spec: str) -> tuple[Column, ...]:
    """Parse `name: doc [unit]; …` into float columns."""
    return _columns("float", spec)


def texts(spec: str) -> tuple[Column, ...]:
    """Parse `name: doc; …` into text columns."""
    return _columns("text", spec)


def flags(spec: str) -> tuple[Column, ...]:
    """Parse `name: doc; …` into boolean columns."""
    return _columns("bool", spec)


def choice(name: str, doc: str, *choices: str) -> Column:
    """A text column with a closed set of values."""
    return Column(name, "text", doc, choices=choices)


def _columns(kind: Type, spec: str) -> tuple[Column, ...]:
    out = []
    for part in filter(None, (p.strip() for p in spec.split(";"))):
        name, _, doc = part.partition(":")
        doc, _, unit = doc.strip().partition("[")
        out.append(Column(name.strip(), kind, doc.strip(), unit.rstrip("]")))
    return tuple(out)


RANK = Column("rank", "int", "global rank, or the process's number where no rank is known")
SPAN = ints("start: start [ns]; end: end, never before start [ns]")
