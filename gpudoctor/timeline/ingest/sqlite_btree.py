"""Which pages of a SQLite file hold a table's rows, and where on them each row lies.

The format is SQLite's own (https://www.sqlite.org/fileformat2.html); of its trees, those of rowid tables are known here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
PADDING = 4096
"""Bytes behind the pages in a buffer, so that what a damaged page says is still read from the buffer before it is refused."""
_INTERIOR, _LEAF = 5, 13
_HEADER = {_INTERIOR: 12, _LEAF: 8}
_DEEPEST = 20
_UTF8 = 1
_LONGEST_VARINT = 8


class Unusual(Exception):
    """Something that is left to SQLite itself: rare, or damaged."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """Leaf pages of one table: the rows whose number is over `bounds[i]` and at most `bounds[i + 1]` lie on `pages[i]`; None is no bound."""

    pages: Ints
    bounds: list[int | None]

    def pieces(self, pages: int) -> Iterator[Leaves]:
        """So many pages at a time, in order."""
        for first in range(0, len(self.pages), pages):
            yield Leaves(self.pages[first : first + pages], self.bounds[first : first + pages + 1])

    def shares(self, most: int) -> list[Leaves]:
        """At most so many pieces, all as large."""
        return list(self.pieces(-(-len(self.pages) // most)))

    def condition(self) -> str:
        """What tells these rows from the table's others, in SQL."""
        low, high = self.bounds[0], self.bounds[-1]
        said = [f"rowid > {low}"] * (low is not None) + [f"rowid <= {high}"] * (high is not None)
        return f" WHERE {' AND '.join(said)}" if said else ""


class PageFile:
    """The pages of a SQLite file, numbered from 1, for one thread. OSError if it cannot be read, Unusual if it is no database whose texts are UTF-8."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        head = self._file.read(100).ljust(100, b"\0")
        size = int.from_bytes(head[16:18], "big")
        self.page_size = 65536 if size == 1 else size
        self.usable = self.page_size - head[20]
        self._pages = self._file.seek(0, os.SEEK_END) // max(self.page_size, 1)
        if self.page_size < 512 or self.page_size & (self.page_size - 1) or self.usable < 480 or int.from_bytes(head[56:60], "big") != _UTF8:
            self.close()
            raise Unusual

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> PageFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, numbers: Ints) -> Bytes:
        """Those pages one after the other, and `PADDING` zeros."""
        buffer = np.empty(len(numbers) * self.page_size + PADDING, np.uint8)
        buffer[-PADDING:] = 0
        runs = np.flatnonzero(np.diff(numbers, prepend=-1) != 1).tolist()
        for first, end in zip(runs, [*runs[1:], len(numbers)], strict=True):
            piece = buffer.data[first * self.page_size : end * self.page_size]
            self._file.seek((int(numbers[first]) - 1) * self.page_size)
            if self._file.readinto(piece) != len(piece):
                raise Unusual
        return buffer

    def leaves(self, root: int) -> Leaves:
        """The leaf pages of the tree at page `root`, in the order of their rows. Unusual if it is not the tree of a rowid table."""
        level, between, seen = np.array([root], np.int64), np.empty(0, np.int64), 0
        for _ in range(_DEEPEST):
            seen += len(level)
            if seen > self._pages or level.min() < 2 or level.max() > self._pages:
                raise Unusual
            if self.read(level[:1])[0] == _LEAF:
                return Leaves(level, [None, *between.tolist(), None])
            pages = self.read(level)
            cells, counts = self.cells(pages, _INTERIOR)
            children, right = big_endian(pages, cells, 4), big_endian(pages, np.arange(len(level)) * self.page_size + 8, 4)
            keys, _ = varints(pages, cells + 4)
            ends = np.cumsum(counts)
            level, between = np.insert(children, ends, right), np.insert(keys, ends[:-1], between)
        raise Unusual

    def cells(self, buffer: Bytes, kind: int = _LEAF) -> tuple[Ints, Ints]:
        """Where in `buffer` the cells of its pages begin, in order, and how many each page has. Unusual if a page is of another kind."""
        pages = buffer[:-PADDING].reshape(-1, self.page_size)
        counts = (pages[:, 3].astype(np.int64) << 8) | pages[:, 4]
        header = _HEADER[kind]
        if (pages[:, 0] != kind).any() or int(counts.max()) * 2 + header > self.usable:
            raise Unusual
        starts = np.repeat(np.arange(len(pages)) * self.page_size, counts)
        nth = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)
        pointers = big_endian(buffer, starts + header + 2 * nth, 2)
        if len(pointers) and (int(pointers.max()) >= self.usable or int(pointers.min()) < header):
            raise Unusual
        return starts + pointers, counts


def big_endian(buffer: Bytes, at: Ints, width: int) -> Ints:
    """The unsigned integers of `width` bytes, 2 or 4, at those places."""
    return np.ndarray((len(buffer) - width,), f">u{width}", buffer, 0, (1,))[at].astype(np.int64)


def varints(buffer: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The numbers written in seven bits a byte at those places, and where each ends. Unusual if one is longer than 8 bytes."""
    last = buffer[at]
    values, ends = (last & 127).astype(np.int64), at + 1
    rest = np.flatnonzero(last > 127)
    for _ in range(_LONGEST_VARINT):
        if not len(rest):
            return values, ends
        last = buffer[ends[rest]]
        values[rest] = (values[rest] << 7) | (last & 127)
        ends[rest] += 1
        rest = rest[last > 127]
    raise Unusual
