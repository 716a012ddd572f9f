"""Which reader a file gets, told by its content."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.options import DetectorKind
from gpudoctor.timeline.ingest.rundir import files_of, is_run, rank_in_name
from gpudoctor.timeline.ingest.trace import TraceReader
from gpudoctor.timeline.ingest.unpack import head_of
from gpudoctor.timeline.store import Store


class Reader(Protocol):
    """A module that reads one kind of file, one rank's or without ranks."""

    def matches(self, head: bytes, path: Path) -> bool:
        """True if the file is of this kind; `head` is its unpacked beginning, empty for a folder."""

    def read(self, path: Path, rank: int | None, store: Store) -> None:
        """Add the file to the store; InputError if it cannot be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of file: the module under `ingest` that reads it, and the detectors it feeds.

    A timeline's module has `open_trace` (see `trace.Trace`), the others have `read`.
    """

    name: str
    module: str
    kinds: tuple[DetectorKind, ...]
    is_trace: bool = False

    @property
    def reader(self) -> Reader:
        return cast(Reader, import_module(f"{__package__}.{self.module}"))

    @property
    def trace_reader(self) -> TraceReader:
        return cast(TraceReader, import_module(f"{__package__}.{self.module}"))


SOURCES = (
    Source("nsys", "nsys_sqlite", ("trace",), True),
    Source("nsys", "nsys_parquet", ("trace",), True),
    Source("nsys", "nsys_export", ("trace",), True),
    Source("run", "records", ("run", "memory", "log")),
    Source("memory", "memory", ("memory",)),
    Source("flight", "flight", ("run", "log")),
    Source("kineto", "kineto", ("trace",), True),
    Source("nccl_log", "nccl_log", ("log",)),
)


@dataclass(frozen=True, slots=True)
class Item:
    """One file to read, and the rank that its place says it is of."""

    path: Path
    source: Source
    rank: int | None = None


@cache
def offered() -> tuple[Source, ...]:
    """The kinds of files whose reader is there."""
    return tuple(s for s in SOURCES if find_spec(f"{__package__}.{s.module}") is not None)


def source_of(path: Path) -> Source:
    """The kind of a file. InputError if it is missing, empty or none of those that gpudoctor reads."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    head = b"" if path.is_dir() else head_of(path)
    if not head and not path.is_dir():
        raise InputError(f"{path}: empty file")
    if path.suffix in (".py", ".ipynb"):
        raise InputError(f"{path}: is source; `gpudoctor lint {path}` checks it, `analyze CAPTURE --source {path}` joins it to what was measured")
    for source in offered():
        if source.reader.matches(head, path):
            return source
    if path.suffix == ".qdstrm":
        raise InputError(f"{path}: nsys could not make its report of it; `QdstrmImporter -i {path}`, of the same Nsight Systems, does, or says what it lacks")
    if path.suffix in (".nsys-rep", ".qdrep", ".sqlite"):
        raise InputError(f"{path}: named like an nsys report, but its content is not one")
    raise InputError(f"{path}: not a capture that gpudoctor knows (nsys report, .sqlite or parquetdir, Kineto .json, memory snapshot, flight-recorder dump, NCCL log, run folder)")


def items_of(path: Path, problems: list[str]) -> Iterator[Item]:
    """The files behind one argument: itself, those of a run folder, or those of a plain folder.

    InputError if the argument is none; files inside a folder that cannot be told are named in `problems` if they
    are in a run folder, and passed over in any other.
    """
    if is_run(path):
        for file in files_of(path):
            try:
                yield Item(file, source_of(file), rank_in_name(file))
            except InputError as error:
                if file.parent.name == "capture":
                    problems.append(str(error))
        return
    if path.is_dir() and not any(s.reader.matches(b"", path) for s in offered()):
        found = [i for file in sorted(path.iterdir()) if file.is_file() and (i := _known(file)) is not None]
        if not found:
            raise InputError(f"{path}: nothing in this folder is a capture that gpudoctor knows")
        yield from found
        return
    yield Item(path, source_of(path))


def _known(file: Path) -> Item | None:
    try:
        return Item(file, source_of(file))
    except InputError:
        return None
