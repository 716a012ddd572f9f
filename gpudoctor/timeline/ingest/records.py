"""What probes and the launcher append to a run folder: lines `[table, {column: scalar or list}]`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from gpudoctor.errors import InputError
from gpudoctor.tables import TABLES
from gpudoctor.timeline.ingest.unpack import chunks
from gpudoctor.timeline.store import Store, arrow_schema

_ROWS_AT_ONCE = 200_000
_LONGEST_LINE = 256 << 20


def matches(head: bytes, path: Path) -> bool:
    """True if the first line is a record of a known table."""
    line = head.split(b"\n", 1)[0]
    return any(line.lstrip().startswith(f'["{name}"'.encode()) for name in TABLES)


def read(path: Path, rank: int | None, store: Store) -> None:
    """Add the records to the tables they name.

    A line that is cut short or names an unknown table or column is left out: recorders may be newer, and a kill
    can break the last line. How many were left out is told in `capture`.
    """
    rows = _Rows(store)
    buffer, left_out = b"", 0
    for piece in chunks(path):
        *lines, buffer = (buffer + piece).split(b"\n")
        left_out += sum(not rows.add(line) for line in lines if line.strip())
        if len(buffer) > _LONGEST_LINE:
            raise InputError(f"{path}: a line of more than {_LONGEST_LINE >> 20} MiB; not a record that gpudoctor wrote")
    broken = bool(buffer.strip()) and not rows.add(buffer)
    rows.flush()
    if not rows.seen:
        raise InputError(f"{path}: no record in it is whole")
    store.add_rows("capture", [{
        "path": str(path), "kind": "run", "tool": "gpudoctor", "truncated": broken, "dropped": left_out, "rank": rank, "ranks": 1,
    }])


class _Rows:
    """Rows gathered by table until there are enough of them to add."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._columns: dict[str, dict[str, list[Any]]] = {}
        self._count: dict[str, int] = defaultdict(int)
        self._decode = msgspec.json.Decoder().decode
        self.seen = 0

    def add(self, line: bytes) -> bool:
        """Take one line; False if it is none of ours."""
        try:
            table, record = self._decode(line)
            known = {c.name for c in TABLES[table].columns}
        except (msgspec.DecodeError, RecursionError, KeyError, TypeError, ValueError):
            return False
        if not isinstance(record, dict):
            return False
        lengths = {len(v) for v in record.values() if isinstance(v, list)}
        if len(lengths) > 1:
            return False
        count = lengths.pop() if lengths else 1
        columns = self._columns.setdefault(table, {})
        before = self._count[table]
        for name, value in record.items():
            if name in known:
                column = columns.setdefault(name, [])
                column.extend([None] * (before - len(column)))
                column.extend(value if isinstance(value, list) else [value] * count)
        self._count[table] += count
        self.seen += 1
        if self._count[table] >= _ROWS_AT_ONCE:
            self._flush(table)
        return True

    def flush(self) -> None:
        for table in list(self._columns):
            self._flush(table)

    def _flush(self, table: str) -> None:
        columns, count = self._columns.pop(table), self._count.pop(table)
        types = {f.name: f.type for f in arrow_schema(TABLES[table])}
        arrays = {n: _array(values + [None] * (count - len(values)), types[n]) for n, values in columns.items()}
        if arrays:
            self._store.add(table, pa.table(arrays))
        self._store.captured.add(table)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return pa.array([_fit(v, kind) for v in values], kind)


def _fit(value: Any, kind: pa.DataType) -> Any:
    try:
        if pa.types.is_string(kind):
            return None if value is None else str(value)
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None
