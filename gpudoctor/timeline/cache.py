"""Finished stores kept beside the captures they came from, so that the next reading is near instant.

An entry is one DuckDB file in `.gpudoctor/` beside the capture, or in the user's cache folder where that cannot be
written. Its name is a keyed hash of the SHA-256 of every input, their paths, the code that read them and DuckDB's
version, so it can be neither stale nor, without the user's own key, planted by whoever sent the capture. A file whose
device, inode, size, modification and change times are as they were when it was hashed is not hashed again: every
write moves the change time, which no program can set. A file changed less than two seconds before it was hashed
always is, since a second change could hide in one tick of the clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from gpudoctor.errors import InputError
from gpudoctor.rundir import write_atomic
from gpudoctor.timeline.digest import sha256, stamp
from gpudoctor.timeline.ingest.options import CACHE_FOLDER, Ingested
from gpudoctor.timeline.store import Store

WORTH_CACHING = 1 << 20
KEPT = 8
_STAMPS = "stamps.json"
_RACY_NS = 2_000_000_000
_FORMAT = 1


@dataclass(slots=True)
class Entry:
    """Where the answer for some inputs is, or will be."""

    file: Path
    temporary: Path

    def load(self, memory_limit: str | None) -> Ingested | None:
        """The finished reading, or None if there is none that can be used."""
        if not self.file.is_file():
            return None
        try:
            store = Store.open(self.file, memory_limit)
            row = store.connection.execute("SELECT about FROM cached").fetchone()
            about: dict[str, Any] = json.loads(row[0] if row else "")
            store.captured = set(about.pop("captured"))
            with suppress(OSError):
                os.utime(self.file)
            return Ingested(store, tuple(about["kinds"]), about["subject_kind"], about["notes"], about["problems"])
        except duckdb.ConnectionException:
            return None
        except (InputError, duckdb.Error, ValueError, KeyError, TypeError):
            self.file.unlink(missing_ok=True)
            return None

    def keep(self, read: Ingested, memory_limit: str | None) -> None:
        """Make the store in `temporary` the entry, and have `read` use it, read-only from now on."""
        about = {"kinds": read.kinds, "subject_kind": read.subject_kind, "notes": read.notes, "problems": read.problems, "captured": sorted(read.store.captured)}
        run = read.store.connection.execute
        run("CREATE TABLE cached (about VARCHAR)")
        run("INSERT INTO cached VALUES ($about)", {"about": json.dumps(about)})
        captured = read.store.captured
        read.store.close()
        self.temporary.replace(self.file)
        read.store = Store.open(self.file, memory_limit)
        read.store.captured = captured
        _prune(self.file.parent)


def entry_for(paths: Iterable[Path], files: Iterable[Path]) -> Entry | None:
    """The entry for reading `paths`, which are made of `files`; None if it is not worth it or has no place."""
    paths, files = list(paths), list(files)
    try:
        size = sum(f.stat().st_size for f in files)
        folder, key = _folder(paths[0]) if size >= WORTH_CACHING else None, _key()
        if folder is None or key is None or shutil.disk_usage(folder).free < 2 * size:
            return None
        digests = _digests(files, folder)
    except OSError:
        return None
    said = json.dumps([_FORMAT, [str(p) for p in paths], digests, _code(), duckdb.__version__])
    name = hashlib.blake2b(said.encode("utf-8", "surrogateescape"), key=key, digest_size=16).hexdigest()
    return Entry(folder / f"{name}.duckdb", folder / f"{uuid4().hex}.partial")


def _digests(files: list[Path], folder: Path) -> list[str]:
    known = _read_stamps(folder)
    stamps: dict[str, list[Any]] = {}
    for file in files:
        name, now = str(file.resolve()), time.time_ns()
        now_stamped, before = stamp(file), known.get(name)
        digest = before[1] if os.name == "posix" and before is not None and before[0] == now_stamped else sha256(file, now_stamped)
        racy = now - max(now_stamped[-2:]) < _RACY_NS
        stamps[name] = [None if racy else now_stamped, digest]
    if any(known.get(n) != s for n, s in stamps.items()):
        with suppress(OSError):
            write_atomic(folder / _STAMPS, json.dumps(known | stamps))
    return [str(stamps[str(f.resolve())][1]) for f in files]


def _read_stamps(folder: Path) -> dict[str, Any]:
    try:
        stamps = json.loads((folder / _STAMPS).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(stamps, dict) or len(stamps) > 10_000:
        return {}
    return {n: s for n, s in stamps.items() if isinstance(s, list) and len(s) == 2 and isinstance(s[1], str)}


def _folder(path: Path) -> Path | None:
    beside = (path if path.is_dir() else path.parent).resolve() / CACHE_FOLDER
    for folder in (beside, _home()):
        if folder is not None and not folder.is_symlink() and _meant_for_writing(folder.parent):
            with suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                if os.access(folder, os.W_OK | os.X_OK):
                    if not (folder / ".gitignore").exists():
                        (folder / ".gitignore").write_text("*\n", "utf-8")
                    return folder
    return None


def _meant_for_writing(folder: Path) -> bool:
    """False for a folder whose mode lets nobody write, even if this user is root."""
    return not folder.exists() or folder.stat().st_mode & 0o222 != 0


def _home() -> Path | None:
    try:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        return None
    return Path(root) / "gpudoctor"


def _key() -> bytes | None:
    """The user's secret, made at first use; None if there is nowhere to keep one."""
    home = _home()
    if home is None:
        return None
    file = home / "key"
    with suppress(OSError):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        made = home / f"key.{uuid4().hex}"
        if not file.exists():
            with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
                opened.write(secrets.token_bytes(32))
            with suppress(FileExistsError):
                os.link(made, file)
            made.unlink()
    try:
        key = file.read_bytes()
    except OSError:
        return None
    return key if len(key) == 32 else None


@once
def _code() -> str:
    """A hash of everything that decides what the tables hold."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted((*package.glob("tables/*.py"), *package.glob("timeline/**/*.py"), *package.glob("timeline/**/*.sql"))):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def _prune(folder: Path) -> None:
    """Keep the entries used last, and remove what killed readings left behind."""
    with suppress(OSError):
        entries = sorted(folder.glob("*.duckdb"), key=lambda f: f.stat().st_mtime, reverse=True)
        stale = [f for f in folder.glob("*.partial*") if f.stat().st_mtime < time.time() - 86_400]
        for file in (*entries[KEPT:], *stale):
            file.unlink(missing_ok=True)


def inputs(paths: Iterable[Path]) -> Iterator[Path]:
    """Every file behind `paths`: themselves, and all files below folders but the cache's own."""
    for path in paths:
        if path.is_dir():
            yield from sorted(f for f in path.rglob("*") if f.is_file() and CACHE_FOLDER not in f.relative_to(path).parts)
        else:
            yield path
