"""Lint a project: source detectors over all files, in several processes when there are many."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpudoctor.cpus import cpus
from gpudoctor.model import Evidence
from gpudoctor.rulebook.detect import detect_in_sources
from gpudoctor.rulebook.load import RuleBook
from gpudoctor.rulebook.rule import Rule
from gpudoctor.source import Problem, Project
from gpudoctor.source.files import find_files
from gpudoctor.source.project import load_file, roots_of

MANY_FILES, BATCH = 48, 16
_Found = tuple[list[tuple[str, Evidence]], list[Problem], int]


@dataclass(slots=True)
class Linted:
    """What was found, how many files were read, and which could not be."""

    evidence: list[tuple[Rule, Evidence]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    files: int = 0


def lint(paths: Sequence[Path], book: RuleBook, params: Mapping[str, Mapping[str, Any]] | None = None, exclude: Iterable[str] = (),
         jobs: int | None = None) -> Linted:
    """Run every source detector of `book` over the files at and below `paths`.

    `jobs` processes share the work (default: one per CPU where there are many files). A detector that fails on a file is
    a problem of that file; the rest goes on. InputError if a path is not there.
    """
    files = list(find_files(paths, exclude))
    settings = (roots_of(paths), book, dict(params or {}))
    count = jobs or (cpus() if len(files) >= MANY_FILES else 1)
    if count < 2 or len(files) < 2 * BATCH:
        found = [_lint_batch(files, *settings)]
    else:
        found = _in_processes(files, settings, count)
    out = Linted()
    rules = {rule.id: rule for rule in book}
    for evidence, problems, read in found:
        out.evidence += [(rules[name], e) for name, e in evidence]
        out.problems += problems
        out.files += read
    out.evidence = _distinct(out.evidence)
    return out


def _in_processes(files: list[tuple[str, str]], settings: tuple[Any, ...], count: int) -> list[_Found]:
    batches = [files[at: at + BATCH] for at in range(0, len(files), BATCH)]
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else None)
    try:
        with ProcessPoolExecutor(min(count, len(batches)), context, _prepare, settings) as pool:
            return list(pool.map(_lint_prepared, batches))
    except BrokenProcessPool:
        return [_lint_batch(batch, *settings) for batch in batches]


_settings: tuple[Any, ...] = ()


def _prepare(*settings: Any) -> None:
    global _settings
    _settings = settings


def _lint_prepared(batch: list[tuple[str, str]]) -> _Found:
    return _lint_batch(batch, *_settings)


def _lint_batch(files: list[tuple[str, str]], roots: tuple[str, ...], book: RuleBook, params: Mapping[str, Mapping[str, Any]]) -> _Found:
    project = Project(roots=roots)
    for path, problem in files:
        load_file(project, path, problem)
    read = {module.path for module in project.modules}
    evidence = [(rule.id, e) for rule, e in lint_project(project, book, params)]
    return evidence, project.problems, len(read)


def lint_project(project: Project, book: RuleBook, params: Mapping[str, Mapping[str, Any]]) -> list[tuple[Rule, Evidence]]:
    """Run every source detector over the loaded modules; one that fails on a file is added to the project's problems."""
    evidence: list[tuple[Rule, Evidence]] = []
    for module in project.modules:
        if not module.relevant:
            continue
        try:
            evidence += detect_in_sources(book, [module], params).evidence
        except (RecursionError, AttributeError, LookupError, TypeError, ValueError, AssertionError) as error:
            project.problems.append(Problem(module.path, f"a rule failed on it ({type(error).__name__}: {error}); please report this"))
        module.__dict__.pop("model", None)
    return evidence


def _distinct(evidence: list[tuple[Rule, Evidence]]) -> list[tuple[Rule, Evidence]]:
    """A helper that several files use is found from each of them: keep one of each."""
    seen: dict[tuple[Any, ...], tuple[Rule, Evidence]] = {}
    for rule, e in evidence:
        place = e.location
        seen.setdefault((rule.id, os.path.abspath(place.path) if place else "", place.line if place else 0, place.column if place else 0, e.group), (rule, e))
    return list(seen.values())
