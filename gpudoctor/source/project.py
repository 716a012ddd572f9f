"""A project: its modules, each parsed once, and what could not be read."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.errors import InputError


@dataclass(slots=True)
class Module:
    """One source file; `language` is python or cuda, `tree` the parsed Python."""

    path: str
    language: str
    text: str
    tree: ast.Module | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be linted, and why."""

    path: str
    reason: str


@dataclass(slots=True)
class Project:
    modules: list[Module] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def load_project(paths: Iterable[Path]) -> Project:
    """Read every Python and CUDA file at or below `paths`; InputError if a path is not there."""
    project = Project()
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            try:
                project.modules.append(_python(str(file), file.read_text("utf-8")))
            except (SyntaxError, ValueError) as error:
                project.problems.append(Problem(str(file), str(error)))
    return project


def parse_sources(sources: Mapping[str, str], language: str = "python") -> list[Module]:
    """Parse texts by file name, as one project; for rule cases and tests."""
    return [_python(name, text) if language == "python" else Module(name, language, text) for name, text in sources.items()]


def _python(path: str, text: str) -> Module:
    return Module(path, "python", text, ast.parse(text))
