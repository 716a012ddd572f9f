"""The text of a file that a finding names. The name may come from a stranger's capture, so only regular files of a source's size are opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MAX_BYTES = 5_000_000


def raw_source(path: str | Path) -> bytes:
    """The file's bytes; none if it is no regular file, is longer than `MAX_BYTES` or cannot be read.

    The kernel's own files call themselves regular and empty, and some never end: an empty file is not opened.
    """
    try:
        about = os.stat(path)
        return Path(path).read_bytes() if stat.S_ISREG(about.st_mode) and 0 < about.st_size <= MAX_BYTES else b""
    except (OSError, ValueError):
        return b""


def lines_of_source(path: str | Path) -> list[str]:
    """The file's lines, read as UTF-8; none where `raw_source` has nothing."""
    return raw_source(path).decode("utf-8", "replace").splitlines()
