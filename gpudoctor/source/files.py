"""Which files belong to a project, and their text: encodings, sizes, links that go in circles."""

from __future__ import annotations

import io
import os
import tokenize
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

from gpudoctor.errors import InputError

LANGUAGES = {".py": "python", ".pyw": "python", ".ipynb": "notebook", ".cu": "cuda", ".cuh": "cuda"}
MAX_BYTES = 2 << 20
_STATE = "state its encoding in the first line, as in `# -*- coding: latin-1 -*-`"
_SKIPPED = {"__pycache__", "node_modules", "venv", "env", "build", "dist", "site-packages", "__pypackages__"}


class Unreadable(Exception):
    """A file that cannot be linted; `str(error)` says why."""


def find_files(paths: Iterable[Path], exclude: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (path, problem) of every source at or below `paths`, in a stable order; `problem` is empty where there is none.

    InputError if a path is not there. Files given by name are taken whatever their ending, as Python where it says nothing.
    """
    patterns = tuple(exclude)
    seen: set[str] = set()
    for path in paths:
        if not path.exists():
            if not path.is_symlink():
                raise InputError(f"{path}: no such file or folder; give a file or a folder of sources")
            yield str(path), "a link that leads nowhere"
        elif path.is_dir():
            yield from _walk(str(path), "", patterns, seen)
        elif (real := os.path.realpath(path)) not in seen:
            seen.add(real)
            yield str(path), ""


def _walk(root: str, below: str, patterns: tuple[str, ...], seen: set[str]) -> Iterator[tuple[str, str]]:
    real = os.path.realpath(root)
    if real in seen:
        return
    seen.add(real)
    try:
        entries = sorted(os.scandir(root), key=lambda e: e.name)
    except OSError as error:
        yield root, f"cannot be opened ({error.strerror})"
        return
    for entry in entries:
        path, name = entry.path, os.path.join(below, entry.name)
        if any(_excluded(name, p) for p in patterns):
            continue
        if _is_dir(entry):
            if entry.name in _SKIPPED or entry.name.startswith("."):
                continue
            if entry.is_symlink() and os.path.realpath(path) in seen:
                yield path, "a link to a folder that was read already; not followed"
                continue
            yield from _walk(path, name, patterns, seen)
        elif os.path.splitext(entry.name)[1] in LANGUAGES:
            if entry.is_symlink() and not os.path.exists(path):
                yield path, "a link that leads nowhere or in a circle"
            elif (target := os.path.realpath(path)) not in seen:
                seen.add(target)
                yield path, ""


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _excluded(name: str, pattern: str) -> bool:
    """True if a path below the folder being read, or its last part, matches."""
    return fnmatch(name, pattern.rstrip("/")) or fnmatch(os.path.basename(name), pattern.rstrip("/"))


def read_text(path: str) -> str:
    """The text of a source by its own encoding mark (PEP 263, BOM); Unreadable says why there is none."""
    try:
        size = os.path.getsize(path)
        if size > MAX_BYTES:
            raise Unreadable(f"{size / 2**20:.1f} MiB is too large for a hand-written source (limit {MAX_BYTES >> 20} MiB); not linted")
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from None
    return decode(raw)


def decode(raw: bytes) -> str:
    """Bytes of a source to text; Unreadable if its encoding is unknown or does not fit."""
    if b"\0" in raw and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable("holds NUL bytes; not a source text")
    try:
        if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
            text = raw.decode("utf-16")
        else:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
            text = raw.decode(encoding)
    except SyntaxError as error:
        if str(error.msg).startswith("invalid or missing"):
            raise Unreadable(f"does not decode as UTF-8; {_STATE}") from None
        raise Unreadable(f"encoding: {error.msg}") from None
    except (UnicodeDecodeError, LookupError) as error:
        raise Unreadable(f"does not decode ({error}); {_STATE}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")
