"""Columns out of the leaf pages of a SQLite table, many rows at a time: a fraction of the time in which SQLite hands out one value after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpudoctor.timeline.ingest.sqlite_btree import PADDING, Bytes, Ints, PageFile, Unusual, varints

Types = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]
_TYPES = 1 << 13
"""Serial types that are known; longer values, over four kilobytes, are left to SQLite."""
_NULL, _REAL, _ZERO, _ONE, _TEXT = 0, 7, 8, 9, 13
_WIDTH = np.zeros(_TYPES, np.int64)
"""Bytes of a value, by its serial type."""
_WIDTH[1 : _REAL + 1] = (1, 2, 3, 4, 6, 8, 8)
_WIDTH[12:] = np.arange(_TYPES - 12) // 2
_INTEGER = np.zeros(_TYPES, bool)
_INTEGER[[*range(_REAL), _ZERO, _ONE]] = True
_STRING = np.zeros(_TYPES, bool)
_STRING[[_NULL, *range(_TEXT, _TYPES, 2)]] = True
_SPILLS = 35
"""A record longer than a page's usable bytes less these is continued elsewhere."""


def columns_of(file: PageFile, pages: Ints, width: int, wanted: Sequence[tuple[int, bool]]) -> list[pa.Array]:
    """Columns of all rows on those leaf pages of a table with `width` columns: int64, or string with '' for null.

    `wanted` are the columns' places in the table, each with whether it is text. Unusual if a record does not lie on one page,
    lacks a column, or holds a value of another type or a text that is not UTF-8.
    """
    buffer = file.read(pages)
    cells, counts = file.cells(buffer)
    if not len(cells):
        return [pa.array([], pa.string() if text else pa.int64()) for _, text in wanted]
    size, at = varints(buffer, cells)
    _, records = varints(buffer, at)
    if int(size.max()) > file.usable - _SPILLS:
        raise Unusual
    ends = records + size
    if (ends > (cells & -file.page_size) + file.usable).any():
        raise Unusual
    types, values = _types(buffer, records, width, max(place for place, _ in wanted) + 1)
    backwards = _backwards(counts)
    chosen, found = dict(wanted), dict[int, pa.Array]()
    for place, kind in enumerate(types):
        widths = _widths(kind)
        if place in chosen:
            found[place] = _texts(buffer, values, kind, widths, backwards) if chosen[place] else _integers(buffer, values, kind, widths)
        values = values + widths
        if int(values.max()) > len(buffer) - PADDING:
            raise Unusual
    if (values > ends).any():
        raise Unusual
    return [found[place] for place, _ in wanted]


def _types(buffer: Bytes, records: Ints, width: int, wanted: int) -> tuple[Types, Ints]:
    """The serial types of the first `wanted` columns, a row a column, and where the records' values begin."""
    headers = buffer[records]
    if int(headers.max()) > 127:
        raise Unusual
    opened = np.ndarray((len(buffer) - wanted,), f"V{wanted + 1}", buffer, 0, (1,))[records]
    types: Types = np.ascontiguousarray(opened.view(np.uint8).reshape(-1, wanted + 1)[:, 1:].T)
    wide = (types > 127).any(axis=0) if int(types.max()) > 127 else np.zeros(len(records), bool)
    odd = np.flatnonzero(wide | (headers != width + 1))
    if len(odd):
        types, at = types.astype(np.uint16), records[odd] + 1
        for column in types:
            kinds, at = varints(buffer, at)
            if int(kinds.max()) >= _TYPES or (at > records[odd] + headers[odd]).any():
                raise Unusual
            column[odd] = kinds
    return types, records + headers


def _widths(types: Types) -> Ints | int:
    """Bytes of each value, or of all if they are alike."""
    first = types[0]
    return int(_WIDTH[first]) if (types == first).all() else _WIDTH[types]


def _integers(buffer: Bytes, at: Ints, types: Types, widths: Ints | int) -> pa.Array:
    if not _INTEGER[types].all():
        raise Unusual
    least, most = int(types.min()), int(types.max())
    if most == _NULL:
        return pa.nulls(len(types), pa.int64())
    if least == most and least >= _ZERO:
        return pa.repeat(pa.scalar(least - _ZERO, pa.int64()), len(types))
    values = np.ndarray((len(buffer) - 8,), ">i8", buffer, 0, (1,))[at].astype(np.int64)
    values >>= np.minimum(64 - 8 * np.asarray(widths), 63)
    if most >= _ZERO:
        constant = types >= _ZERO
        values[constant] = types[constant] - _ZERO
    return pa.array(values, mask=types == _NULL if least == _NULL else None)


def _texts(buffer: Bytes, at: Ints, types: Types, widths: Ints | int, backwards: Ints) -> pa.Array:
    """The buffer itself as Arrow's text, cut before and after every value, and of the cuttings those that are values."""
    if not _STRING[types].all():
        raise Unusual
    widths = np.broadcast_to(widths, at.shape)
    order = where = backwards
    if (np.diff(at[order]) < 0).any():
        order = np.argsort(at, kind="stable")
        where = np.argsort(order)
    cuts = np.empty(2 * len(at) + 1, np.int32)
    cuts[:-1:2], cuts[1::2], cuts[-1] = at[order], at[order] + widths[order], len(buffer)
    if (np.diff(cuts) < 0).any():
        raise Unusual
    pieces = pa.StringArray.from_buffers(2 * len(at), pa.py_buffer(cuts), pa.py_buffer(buffer))
    texts = pieces.take(pa.array(2 * where))
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        raise Unusual from None
    return texts


def _backwards(counts: Ints) -> Ints:
    """The rows with those of each page turned round: SQLite fills its pages from their ends."""
    firsts = np.cumsum(counts) - counts
    return np.repeat(2 * firsts + counts - 1, counts) - np.arange(int(counts.sum()))
