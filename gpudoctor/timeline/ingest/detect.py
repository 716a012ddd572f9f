"""Which reader a file gets, told by its content."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Protocol, cast

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.unpack import head_of
from gpudoctor.timeline.store import Store

DetectorKind = Literal["trace", "run", "memory", "log"]


class Reader(Protocol):
    """A module that reads one kind of file."""

    def matches(self, head: bytes, path: Path) -> bool:
        """True if the file is of this kind; `head` is its unpacked beginning, empty for a folder."""

    def read(self, path: Path, rank: int | None, store: Store) -> None:
        """Add the file to the store; InputError if it cannot be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of file: the module under `ingest` that reads it, and the detectors it feeds."""

    name: str
    module: str
    kinds: tuple[DetectorKind, ...]
    is_capture: bool = True

    def reader(self) -> Reader:
        return cast(Reader, import_module(f"{__package__}.{self.module}"))


SOURCES = (
    Source("nsys", "nsys_sqlite", ("trace",)),
    Source("nsys", "nsys_parquet", ("trace",)),
    Source("nsys", "nsys_export", ("trace",)),
    Source("memory", "memory", ("memory",)),
    Source("flight", "flight", ("log",)),
    Source("kineto", "kineto", ("trace",)),
    Source("nccl_log", "nccl_log", ("log",)),
)


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
    for source in offered():
        if source.reader().matches(head, path):
            return source
    if path.suffix in (".nsys-rep", ".qdrep", ".sqlite"):
        raise InputError(f"{path}: named like an nsys report, but its content is not one")
    raise InputError(f"{path}: not a capture that gpudoctor knows (nsys report, .sqlite or parquetdir, Kineto .json, memory snapshot, flight-recorder dump, NCCL log, run folder)")
