"""Files as they are, compressed or not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from gpudoctor.errors import InputError

try:
    from isal import isal_zlib as zlib  # three times as fast
except ImportError:
    import zlib  # type: ignore[no-redef]

_DAMAGED = cast("type[Exception]", zlib.error)
GZIP = b"\x1f\x8b"
SQLITE = b"SQLite format 3\0"
HEAD = 1 << 16
LARGEST = 64 << 30
CHUNK = 1 << 20
ROOM_TO_LEAVE = 1 << 30


def head_of(path: Path, size: int = HEAD) -> bytes:
    """The first bytes of a file, unpacked if it is gzip. InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(size)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if not raw.startswith(GZIP):
        return raw
    with suppress(_DAMAGED):
        return zlib.decompressobj(wbits=31).decompress(raw, size)
    return raw


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a plain file: `path` itself, or a temporary copy of what a gzip holds, as far as it goes."""
    with path.open("rb") as file:
        if file.read(2) != GZIP:
            yield path
            return
    room = shutil.disk_usage(tempfile.gettempdir()).free
    with tempfile.NamedTemporaryFile(prefix="gpudoctor-") as copy:
        for piece in chunks(path):
            room -= len(piece)
            if room < ROOM_TO_LEAVE:
                raise InputError(f"{path}: too large to unpack in {tempfile.gettempdir()}; unpack it yourself and give the plain file")
            copy.write(piece)
        copy.flush()
        yield Path(copy.name)


def chunks(path: Path) -> Iterator[bytes]:
    """The file piece by piece, unpacked if it is gzip; where a gzip is cut off or damaged, the pieces end.

    The next piece is read and unpacked while the caller works on the last. InputError if the file cannot be opened.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    with file, ThreadPoolExecutor(1) as reader:
        pieces = _unzip(file) if file.read(2) == GZIP else iter(lambda: file.read(CHUNK), b"")
        file.seek(0)
        ahead = reader.submit(next, pieces, b"")
        while piece := ahead.result():
            ahead = reader.submit(next, pieces, b"")
            yield piece


def _unzip(file: BinaryIO) -> Iterator[bytes]:
    unzip, total = zlib.decompressobj(wbits=31), 0
    raw = file.read(CHUNK)
    while raw:
        try:
            piece = unzip.decompress(raw, CHUNK)
        except _DAMAGED:
            return
        total += len(piece)
        if total > LARGEST:
            raise InputError(f"{file.name}: unpacks to more than {LARGEST >> 30} GiB")
        if piece:
            yield piece
        raw = unzip.unconsumed_tail
        if unzip.eof:
            raw, unzip = unzip.unused_data, zlib.decompressobj(wbits=31)
        raw = raw or file.read(CHUNK)
