"""What is known about each file that was read, and rows that cannot be true."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpudoctor.timeline.store import Store

LATEST = 1 << 62
_TIMED = ("gpu_op", "api", "sync", "nvtx", "cpu_op")
_COUNTED = {"gpu_ops": "gpu_op", "api_calls": "api", "ranges": "nvtx", "operators": "cpu_op"}


def possible(table: pa.Table) -> pa.Table:
    """The rows that end no earlier than they start and lie inside some clock; `t` alone is a moment."""
    first, last = (table[c] for c in (("t", "t") if "t" in table.column_names else ("start", "end")))
    believed = pc.and_(pc.and_(pc.greater_equal(first, 0), pc.greater_equal(last, first)), pc.less_equal(last, LATEST))
    return table if pc.all(believed, skip_nulls=False).as_py() else table.filter(believed)


def drop_impossible(store: Store, ranks: range) -> int:
    """The same in the store, for rows of these ranks that are there already; return how many were deleted."""
    dropped, mine = 0, _of(ranks)
    for table in _TIMED:
        row = store.connection.execute(
            f'DELETE FROM "{table}" WHERE {mine} AND (start IS NULL OR "end" IS NULL OR "end" < start OR start < 0 OR "end" > {LATEST})'
        ).fetchone()
        dropped += int(row[0]) if row else 0
    for table, column in (("gpu_mem", "t"), ("event_record", "start")):
        store.connection.execute(f'DELETE FROM "{table}" WHERE {mine} AND ("{column}" < 0 OR "{column}" > {LATEST})')
    return dropped


def describe(store: Store, path: Path, kind: str, ranks: range, facts: Mapping[str, Any]) -> None:
    """Add the file's row to `capture`."""
    store.add_rows("capture", [{"path": str(path), "kind": kind, "rank": ranks.start, "ranks": len(ranks), **facts}])


def contents(store: Store, ranks: range) -> dict[str, int | None]:
    """Counts and span of what the store holds of these ranks, as columns of `capture`."""
    mine = _of(ranks)
    spans = " UNION ALL ".join(f'SELECT min(start) AS s, max("end") AS e FROM "{t}" WHERE {mine}' for t in _TIMED)
    row = store.connection.execute(f"SELECT min(s), max(e) FROM ({spans})").fetchone() or (None, None)
    return {"start": row[0], "end": row[1], **{column: _count(store, table, mine) for column, table in _COUNTED.items()}}


def contents_of(tables: Mapping[str, pa.Table]) -> dict[str, int | None]:
    """The same of tables that are not in the store yet, by their canonical names."""
    timed = [tables[t] for t in _TIMED if t in tables and tables[t].num_rows]
    span = {"start": min((pc.min(t["start"]).as_py() for t in timed), default=None), "end": max((pc.max(t["end"]).as_py() for t in timed), default=None)}
    return span | {column: tables[table].num_rows if table in tables else 0 for column, table in _COUNTED.items()}


def _of(ranks: range) -> str:
    return f"rank BETWEEN {ranks.start} AND {ranks.stop - 1}"


def _count(store: Store, table: str, where: str) -> int:
    row = store.connection.execute(f'SELECT count(*) FROM "{table}" WHERE {where}').fetchone()
    return int(row[0]) if row else 0
