"""Files as they are, compressed or not."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gpudoctor.errors import InputError

GZIP = b"\x1f\x8b"
HEAD = 1 << 16
LARGEST_TEXT = 8 << 30
CHUNK = 1 << 24


def head_of(path: Path, size: int = HEAD) -> bytes:
    """The first bytes of a file, unpacked if it is gzip. InputError if it cannot be read."""
    try:
        with path.open("rb") as file:
            raw = file.read(size)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if not raw.startswith(GZIP):
        return raw
    with suppress(zlib.error):
        return zlib.decompressobj(wbits=31).decompress(raw, size)
    return raw


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Yield a plain file: `path` itself, or a temporary copy if it is gzip. InputError if the gzip is damaged."""
    with path.open("rb") as file:
        if file.read(2) != GZIP:
            yield path
            return
    with tempfile.NamedTemporaryFile(prefix="gpudoctor-", suffix=path.stem[-40:]) as copy:
        try:
            with gzip.open(path) as packed:
                shutil.copyfileobj(packed, copy, 1 << 20)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(f"{path}: truncated or damaged gzip file ({error})") from None
        copy.flush()
        yield Path(copy.name)


def read_bytes(path: Path) -> tuple[bytes, bool]:
    """The whole file, unpacked if it is gzip, and whether a gzip's end is missing. InputError if it cannot be read."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    if not raw.startswith(GZIP):
        return raw, False
    parts: list[bytes] = []
    total, cut = 0, False
    while raw and not cut:
        unzip = zlib.decompressobj(wbits=31)
        try:
            while not unzip.eof and raw:
                parts.append(unzip.decompress(raw, CHUNK))
                total += len(parts[-1])
                raw = unzip.unconsumed_tail
                if total > LARGEST_TEXT:
                    raise InputError(f"{path}: unpacks to more than {LARGEST_TEXT >> 30} GiB; record fewer steps")
            cut = not unzip.eof
            raw = unzip.unused_data if unzip.unused_data.startswith(GZIP) else b""
        except zlib.error:
            cut = True
    return b"".join(parts), cut
