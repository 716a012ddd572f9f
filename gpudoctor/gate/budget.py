"""`[tool.gpudoctor.gate]`: what a merge may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from gpudoctor.errors import UsageError
from gpudoctor.model import Severity


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of the gate; None is no limit.

    script and args: what to run. ranks: ranks per host. repeats: interleaved pairs, at least 3. fail_on: new findings of this
    severity or above fail. allow: slugs that never fail. slowdown: share by which a step may grow beyond noise.
    comm_growth: share by which bytes sent per step may grow. The rest are absolute limits in the units of their names.
    """

    script: str | None = None
    args: tuple[str, ...] = ()
    ranks: int | None = None
    repeats: int = 5
    baseline: str = "main"
    fail_on: Severity = Severity.perf
    allow: tuple[str, ...] = ()
    slowdown: float = 0.05
    comm_growth: float = 0.01
    step_ms: float | None = None
    exposed_comm_ms: float | None = None
    syncs_per_step: float | None = None
    peak_memory_gib: float | None = None
    imbalance: float | None = None
    gradient_drift: float | None = None


def read_budget(raw: dict[str, Any]) -> Budget:
    """Turn the table as written into a Budget; UsageError names a key that is unknown or of the wrong type."""
    known = {f.name for f in fields(Budget)}
    values: dict[str, Any] = {}
    for key, value in raw.items():
        name = key.replace("-", "_")
        where = f"tool.gpudoctor.gate.{key}"
        if name not in known:
            raise UsageError(f"unknown key {where}; known: {', '.join(sorted(k.replace('_', '-') for k in known))}")
        values[name] = _convert(name, value, where)
    return Budget(**values)


def _convert(name: str, value: Any, where: str) -> Any:
    if name in ("script", "baseline"):
        return _checked(value, str, where, "a string")
    if name in ("args", "allow"):
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise UsageError(f"{where} must be a list of strings")
        return tuple(value)
    if name == "fail_on":
        if value not in Severity.__members__:
            raise UsageError(f"{where} must be one of {', '.join(Severity.__members__)}")
        return Severity[value]
    if name in ("ranks", "repeats"):
        number = _checked(value, int, where, "a whole number")
        if number < (3 if name == "repeats" else 1):
            raise UsageError(f"{where} must be at least {3 if name == 'repeats' else 1}")
        return number
    number = float(_checked(value, (int, float), where, "a number"))
    if not number >= 0:
        raise UsageError(f"{where} must not be negative")
    return number


def _checked(value: Any, kind: type | tuple[type, ...], where: str, words: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UsageError(f"{where} must be {words}")
    return value
