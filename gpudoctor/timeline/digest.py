"""What a file holds, as a hash; light, so that hashing is under way while this process loads its libraries."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread

Stamp = list[int]
_AT_ONCE = 8 << 20
"""Large, since after each piece the thread has to wait for its turn among the others."""
_begun: dict[Path, Future[tuple[Stamp, str]]] = {}


def stamp(file: Path) -> Stamp:
    """What changes whenever the file does: device, inode, size, modification and change time."""
    about = file.stat()
    return [about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns]


def begin(files: Iterable[Path]) -> None:
    """Hash files in a thread, one after the other; it holds up nothing, not even the end of the process."""
    coming = {file: Future[tuple[Stamp, str]]() for file in files if file not in _begun}
    _begun.update(coming)
    Thread(target=_hash, args=(coming,), daemon=True).start()


def sha256(file: Path, stamped: Stamp) -> str:
    """SHA-256 of the file; what `begin` found counts if the file had this stamp before."""
    early = _begun.pop(file, None)
    with suppress(OSError):
        if early is not None and early.result()[0] == stamped:
            return early.result()[1]
    return _sha256(file)


def _hash(coming: dict[Path, Future[tuple[Stamp, str]]]) -> None:
    for file, future in coming.items():
        try:
            future.set_result((stamp(file), _sha256(file)))
        except OSError as error:
            future.set_exception(error)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb", buffering=0) as opened:
        while piece := opened.read(_AT_ONCE):
            digest.update(piece)
    return digest.hexdigest()
