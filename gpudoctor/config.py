"""`[tool.gpudoctor]` in the user's pyproject.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gpudoctor.errors import UsageError
from gpudoctor.model import Severity


@dataclass(frozen=True, slots=True)
class Config:
    """Settings from one pyproject.toml; every command-line option overrides its setting.

    `gate` holds `[tool.gpudoctor.gate]` as written, for the gate to read.
    """

    root: Path = Path()
    fail_on: Severity = Severity.error
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file_ignores: dict[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    allow_python_rules: bool = False
    params: dict[str, dict[str, Any]] = field(default_factory=dict)
    overhead_budget: float | None = None
    baseline: str | None = None
    gate: dict[str, Any] = field(default_factory=dict)


def find_pyproject(start: Path) -> Path | None:
    """Return the nearest pyproject.toml at or above `start` that has a `[tool.gpudoctor]` table."""
    start = start.resolve()
    for folder in (start, *start.parents) if start.is_dir() else start.parents:
        candidate = folder / "pyproject.toml"
        if candidate.is_file() and "gpudoctor" in _tool_table(candidate):
            return candidate
    return None


def load_config(start: Path) -> Config:
    """Read the nearest configuration above `start`; defaults where there is none.

    Raises UsageError that names the file and the key if a key is unknown or has the wrong type.
    """
    path = find_pyproject(start)
    if path is None:
        return Config(root=start if start.is_dir() else start.parent)
    raw = _tool_table(path)["gpudoctor"]
    if not isinstance(raw, dict):
        raise UsageError(f"{path}: [tool.gpudoctor] must be a table")
    return parse_config(raw, path)


def parse_config(raw: dict[str, Any], path: Path) -> Config:
    """Turn the parsed table into a Config; `path` is named in errors."""
    known = {f.name for f in fields(Config)} - {"root"}
    values: dict[str, Any] = {"root": path.parent}
    for key, value in raw.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(f"{path}: unknown key tool.gpudoctor.{key}; known: {', '.join(sorted(k.replace('_', '-') for k in known))}")
        values[name] = _convert(name, value, f"{path}: tool.gpudoctor.{key}")
    return Config(**values)


def _convert(name: str, value: Any, where: str) -> Any:
    if name == "fail_on":
        if value not in Severity.__members__:
            raise UsageError(f"{where} must be one of {', '.join(Severity.__members__)}")
        return Severity[value]
    if name in ("select", "ignore", "exclude", "rules"):
        return _texts(value, where)
    if name == "per_file_ignores":
        if not isinstance(value, dict):
            raise UsageError(f"{where} must be a table of pattern = [rules]")
        return {pattern: _texts(rules, f"{where}.{pattern}") for pattern, rules in value.items()}
    expected: dict[str, tuple[type, ...]] = {
        "allow_python_rules": (bool,), "params": (dict,), "gate": (dict,), "overhead_budget": (int, float), "baseline": (str,),
    }
    if not isinstance(value, expected[name]):
        raise UsageError(f"{where} must be a {expected[name][-1].__name__}")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise UsageError(f"{where} must be a list of strings")
    return tuple(value)


def _tool_table(path: Path) -> dict[str, Any]:
    try:
        tool = tomllib.loads(path.read_text("utf-8")).get("tool", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); mend it or move it") from None
    return tool if isinstance(tool, dict) else {}
