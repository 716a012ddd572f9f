"""A project: its modules, each parsed once, how they find one another, and what could not be read."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gpudoctor.model import Location
from gpudoctor.source.files import LANGUAGES, Unreadable, find_files, read_text
from gpudoctor.source.library import is_library
from gpudoctor.source.notebook import cells_to_python
from gpudoctor.source.scopes import top_level_bindings, walk

if TYPE_CHECKING:
    from gpudoctor.source.model import Model

_WEAK = re.compile(r"torch|accelerate|lightning|cuda|nccl|NCCL|deepspeed|fabric|backward")
_STRONG = re.compile(
    r"backward|no_sync|unscale_|DataLoader|DistributedDataParallel|DataParallel|GradScaler|Stream\b|Event\b|non_blocking|pin_memory|empty_cache|synchronize|torch\.load|"
    r"import load\b|init_process_group|barrier|all_reduce|all_gather|broadcast|wait_for_everyone|accelerat|DistributedSampler|memory_(reserved|allocated|cached)|autocast|"
    r"training_step|compute_loss|NCCL_|GLOO_|__global__|abric|convert_sync_batchnorm|new_group|import \*")
_FEW = 8


@dataclass(eq=False)
class Module:
    """One source file; `language` is python or cuda, `tree` the parsed Python.

    `places` maps its lines to (cell, line) of a notebook; `offset` is added to the lines of CUDA text inside Python.
    """

    path: str
    language: str
    text: str
    tree: ast.Module | None = None
    project: Project = field(default_factory=lambda: Project(), repr=False)
    places: list[tuple[int, int]] | None = None
    offset: int = 0

    @cached_property
    def model(self) -> Model:
        """What the module does, resolved; built on first use."""
        from gpudoctor.source.model import build_model

        return build_model(self)

    @cached_property
    def relevant(self) -> bool:
        """False if nothing in the text has to do with training on GPUs; a thin script of a small project may leave that to its imports."""
        few = len(self.project.modules) < _FEW
        return (_WEAK if few else _STRONG).search(self.text) is not None

    @cached_property
    def bindings(self) -> dict[str, list[ast.stmt]]:
        """The statements at top level that bind each name."""
        return top_level_bindings(self.tree) if self.tree is not None else {}

    def location(self, node: ast.AST) -> Location:
        """Where a node stands, in a notebook by cell."""
        line, end = getattr(node, "lineno", 1), getattr(node, "end_lineno", None)
        if isinstance(body := getattr(node, "body", None), list) and body:
            end = max(line, min(end or line, body[0].lineno - 1))
        return self.at(line, end, getattr(node, "col_offset", 0) + 1)

    def at(self, line: int, end: int | None = None, column: int | None = None) -> Location:
        if self.places is not None:
            cell, line_in_cell = self.places[min(line, len(self.places)) - 1]
            return Location(f"{self.path}:cell {cell}", line_in_cell, None if end is None else line_in_cell + max(0, end - line), column)
        return Location(self.path, line + self.offset, None if end is None else end + self.offset, column)


@dataclass(frozen=True, slots=True)
class Problem:
    """A file that could not be linted, and why."""

    path: str
    reason: str


@dataclass(eq=False)
class Project:
    """Modules to lint, problems met, and modules outside the list that they import (`others`)."""

    modules: list[Module] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    virtual: bool = False
    roots: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._by_path: dict[str, Module | None] = {}
        self._imports: dict[tuple[str, str], Module | None] = {}

    def add(self, module: Module) -> None:
        """Take a module in; CUDA texts inside it follow as modules of their own."""
        module.project = self
        self.modules.append(module)
        self._by_path[module.path if self.virtual else os.path.abspath(module.path)] = module
        if module.tree is not None and "__global__" in module.text:
            for inner in _cuda_inside(module):
                inner.project = self
                self.modules.append(inner)

    def find(self, dotted: str, importer: Module) -> Module | None:
        """The project's module of that dotted name as seen from `importer`; None for libraries and unknown names."""
        folder = os.path.dirname(importer.path)
        memo = (dotted, folder)
        if memo not in self._imports:
            self._imports[memo] = None if is_library(dotted) else self._search(dotted, folder)
        return self._imports[memo]

    def relative(self, level: int, dotted: str, importer: Module) -> Module | None:
        """The module that `from ..dotted` means in `importer`."""
        folder = os.path.dirname(importer.path)
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        parts = dotted.split(".") if dotted else []
        return self._at(os.path.join(folder, *parts))

    def lines(self, path: str) -> list[str] | None:
        """The lines of a module of this project by a finding's path; None if it is not one."""
        base, _, cell = path.rpartition(":cell ") if ":cell " in path else (path, "", "")
        module = self._by_path.get(base if self.virtual else os.path.abspath(base))
        if module is None:
            return None
        lines = module.text.split("\n")
        if not cell or module.places is None:
            return lines
        return [line for line, place in zip(lines, module.places, strict=False) if place[0] == int(cell)]

    def _search(self, dotted: str, folder: str) -> Module | None:
        parts = dotted.split(".")
        tops = [folder]
        while not self.virtual and os.path.isfile(os.path.join(folder, "__init__.py")) and os.path.dirname(folder) != folder:
            folder = os.path.dirname(folder)
            tops.append(folder)
        if self.virtual and folder:
            tops.append("")
        for top in dict.fromkeys((*tops, *self.roots)):
            found = self._at(os.path.join(top, *parts))
            if found is not None:
                return found
        return None

    def _at(self, stem: str) -> Module | None:
        for path in (stem + ".py", os.path.join(stem, "__init__.py")):
            found = self._get(path)
            if found is not None:
                return found
        return None

    def _get(self, path: str) -> Module | None:
        if self.virtual:
            return self._by_path.get(path)
        path = os.path.abspath(path)
        if path not in self._by_path:
            self._by_path[path] = None
            if os.path.isfile(path):
                try:
                    module = _python(path, read_text(path))
                    module.project = self
                    self._by_path[path] = module
                except Unreadable:
                    pass
        return self._by_path[path]


def load_project(paths: Iterable[Path], exclude: Iterable[str] = ()) -> Project:
    """Read every Python and CUDA file at or below `paths`; InputError if a path is not there."""
    paths = list(paths)
    project = Project(roots=roots_of(paths))
    for path, problem in find_files(paths, exclude):
        load_file(project, path, problem)
    return project


def roots_of(paths: Iterable[Path]) -> tuple[str, ...]:
    """Folders where absolute imports of the project may start."""
    folders = [os.path.abspath(p if p.is_dir() else p.parent) for p in paths]
    return tuple(dict.fromkeys(f for folder in folders for f in (folder, os.path.join(folder, "src"))))


def load_file(project: Project, path: str, problem: str = "") -> None:
    """Add one file to the project, or say why not."""
    try:
        if problem:
            raise Unreadable(problem)
        language = LANGUAGES.get(os.path.splitext(path)[1], "python")
        text = read_text(path)
        if language == "cuda":
            project.add(Module(path, "cuda", text))
        elif language == "notebook":
            code, places = cells_to_python(text)
            project.add(_python(path, code, places))
        else:
            project.add(_python(path, text))
    except Unreadable as error:
        project.problems.append(Problem(path, str(error)))


def parse_sources(sources: Mapping[str, str], language: str = "python") -> list[Module]:
    """Parse texts by file name, as one project; for rule cases and tests. Raises Unreadable for broken Python."""
    project = Project(virtual=True)
    for name, text in sources.items():
        kind = LANGUAGES.get(os.path.splitext(name)[1], language) if language == "python" else language
        if kind == "notebook":
            project.add(_python(name, *cells_to_python(text)))
        else:
            project.add(Module(name, "cuda", text) if kind == "cuda" else _python(name, text))
    return project.modules


def _python(path: str, text: str, places: list[tuple[int, int]] | None = None) -> Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError as error:
        line = error.lineno or 1
        where = f"line {line}" if places is None else "cell {}, line {}".format(*places[min(line, len(places)) - 1])
        raise Unreadable(f"{where}: {_reason(error)}; not linted") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"cannot be parsed ({type(error).__name__}: {error}); not linted") from None
    return Module(path, "python", text, tree, places=places)


def _reason(error: SyntaxError) -> str:
    text = error.msg or "broken syntax"
    old = ("Missing parentheses in call to 'print'", "Missing parentheses in call to 'exec'", "multiple exception types must be parenthesized",
           "leading zeros in decimal", "inconsistent use of tabs")
    if text.startswith(old) or (error.text and re.search(r"\braise \w+, |\bprint >>|<>|\bexcept \w+, \w+:", error.text)):
        return f"Python 2 syntax ({text})"
    return f"broken syntax ({text})"


def _cuda_inside(module: Module) -> list[Module]:
    assert module.tree is not None
    docs = {id(s.value) for s in walk(module.tree) if isinstance(s, ast.Expr)}
    return [
        Module(module.path, "cuda", node.value, offset=node.lineno - 1) for node in walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "__global__" in node.value and "{" in node.value and id(node) not in docs
    ]


def lines_at(path: str) -> list[str]:
    """The lines behind a finding's path, which may name a notebook's cell; empty if they cannot be read."""
    base, _, cell = path.rpartition(":cell ") if ":cell " in path else (path, "", "")
    try:
        text = read_text(base)
        if not cell:
            return text.split("\n")
        code, places = cells_to_python(text)
        return [line for line, place in zip(code.split("\n"), places, strict=False) if place[0] == int(cell)]
    except (Unreadable, ValueError):
        return []
