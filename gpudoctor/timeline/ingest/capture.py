"""What is known about each file that was read, and rows that cannot be true."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpudoctor.timeline.store import Store

LATEST = 1 << 62
_TIMED = ("gpu_op", "api", "sync", "nvtx", "cpu_op")
_COUNTED = {"gpu_ops": "gpu_op", "api_calls": "api", "ranges": "nvtx", "operators": "cpu_op"}


def drop_impossible(store: Store) -> int:
    """Delete rows that end before they start or lie outside any clock; return how many there were."""
    dropped = 0
    for table in _TIMED:
        row = store.connection.execute(
            f'DELETE FROM "{table}" WHERE start IS NULL OR "end" IS NULL OR "end" < start OR start < 0 OR "end" > {LATEST}'
        ).fetchone()
        dropped += int(row[0]) if row else 0
    for table, column in (("gpu_mem", "t"), ("event_record", "start")):
        store.connection.execute(f'DELETE FROM "{table}" WHERE "{column}" < 0 OR "{column}" > {LATEST}')
    return dropped


def describe(store: Store, path: Path, kind: str, ranks: range, facts: Mapping[str, Any], dropped: int = 0) -> None:
    """Add the file's row to `capture`; counts and span are those of its ranks."""
    mine = f"rank BETWEEN {ranks.start} AND {ranks.stop - 1}"
    spans = " UNION ALL ".join(f'SELECT min(start) AS s, max("end") AS e FROM "{t}" WHERE {mine}' for t in _TIMED)
    row = store.connection.execute(f"SELECT min(s), max(e) FROM ({spans})").fetchone() or (None, None)
    store.add_rows("capture", [{
        "path": str(path), "kind": kind, "rank": ranks.start, "ranks": len(ranks), "dropped": dropped, "start": row[0], "end": row[1],
        **{column: _count(store, table, mine) for column, table in _COUNTED.items()}, **facts,
    }])


def _count(store: Store, table: str, where: str) -> int:
    row = store.connection.execute(f'SELECT count(*) FROM "{table}" WHERE {where}').fetchone()
    return int(row[0]) if row else 0
