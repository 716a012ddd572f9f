"""What an experiment says: a table, a verdict and the data of a plot. Plain values only, so that any reporter can show it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError
from gpudoctor.rundir import write_atomic

SCHEMA = "gpudoctor.harness/1"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; `unit` is one of "", s, B, B/s, %, n as in gpudoctor.units, or free text."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot."""

    name: str
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)

    def add(self, x: float, y: float) -> None:
        self.x.append(x)
        self.y.append(y)


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over a common x axis; `log` names the axes ("x", "y", "xy" or "") with a log scale."""

    title: str
    x: str
    y: str
    series: list[Series]
    log: str = ""

    def rows(self) -> list[dict[str, Any]]:
        """One row a point: x, y, series; the first names the axes."""
        points: list[dict[str, Any]] = [{"x": x, "y": y, "series": line.name} for line in self.series for x, y in zip(line.x, line.y, strict=True)]
        if points:
            points[0] |= {"title": self.title, "x_title": self.x, "y_title": self.y, "x_log": "x" in self.log, "y_log": "y" in self.log}
        return points


@dataclass(slots=True)
class Result:
    """One experiment's outcome.

    `state` is ok (measured, nothing wrong), bad (measured, and something is wrong) or cannot (the machine lacks what it
    needs; the verdict says what). `limits` says what the numbers cannot show on this machine.
    """

    experiment: str
    title: str
    verdict: str
    state: str = "ok"
    columns: list[Column] = field(default_factory=list)
    rows: list[list[Any]] = field(default_factory=list)
    plots: list[Plot] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    setting: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        """Write as JSON in one move."""
        write_atomic(path, json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1, allow_nan=True))

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read what `write` wrote; InputError if it is none."""
        try:
            raw = json.loads(path.read_text("utf-8"))
            if raw.pop("schema") != SCHEMA:
                raise ValueError("another schema")
            raw["columns"] = [Column(**c) for c in raw["columns"]]
            raw["plots"] = [Plot(**{**p, "series": [Series(**s) for s in p["series"]]}) for p in raw["plots"]]
            return cls(**raw)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: not a harness result ({error})") from None


def cannot(experiment: str, title: str, why: str) -> Result:
    """The result of an experiment that this machine cannot run."""
    return Result(experiment, title, f"cannot run here: {why}", "cannot")
