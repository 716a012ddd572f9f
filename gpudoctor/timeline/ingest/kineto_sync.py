"""Synchronisation in Kineto traces: from its own rows if the profiler recorded them, else from the calls."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from gpudoctor.timeline.ingest.names import plain_api, records_event, sync_kind
from gpudoctor.timeline.store import Store

_FROM_ROWS = """INSERT INTO sync (rank, kind, context, stream, event, src_corr, start, "end", corr)
SELECT y.rank, coalesce(c.kind, CASE lower(y.name)
        WHEN 'stream sync' THEN 'stream' WHEN 'event sync' THEN 'event' WHEN 'context sync' THEN 'device' WHEN 'device sync' THEN 'device'
        WHEN 'stream wait event' THEN 'stream_wait_event' ELSE CASE WHEN y.stream IS NULL THEN 'device' ELSE 'stream' END END),
    y.context, y.stream, y.event, y.src_corr, y.start, y."end", y.corr
FROM rows y LEFT JOIN calls c ON c.corr = y.corr"""
_FROM_CALLS = """INSERT INTO sync (rank, kind, start, "end", corr)
SELECT rank, kind, start, "end", corr FROM calls WHERE kind IN ('stream', 'event', 'device')"""
_RECORDS = """INSERT INTO event_record (rank, context, event, stream, corr, start)
SELECT r.rank, {context}, {event}, {recorded}, r.corr, any_value(r.start)
FROM records r {join} GROUP BY r.rank, r.corr"""
_RECORDS_TIED = _RECORDS.format(join="LEFT JOIN rows y ON y.src_corr = r.corr", context="any_value(y.context)", event="any_value(y.event)", recorded="any_value(y.recorded)")
_RECORDS_ALONE = _RECORDS.format(join="", context="NULL", event="NULL", recorded="NULL")


def add_sync(store: Store, rank: int, rows: pa.Table | None) -> None:
    """Fill sync and event_record of one rank, whose calls are in `api` already.

    `event_record` counts as captured only if the profiler recorded synchronisation, or if there is but one stream:
    else who waits for whom is unknown.
    """
    if "api" not in store.captured and rows is None:
        return
    cursor = store.connection.cursor()
    cursor.register("calls", _calls(store, rank, sync_kind))
    cursor.register("records", _calls(store, rank, lambda api: "record" if records_event(api) else None))
    if rows is not None:
        cursor.register("rows", rows)
    cursor.execute(_FROM_CALLS if rows is None else _FROM_ROWS)
    cursor.execute(_RECORDS_ALONE if rows is None else _RECORDS_TIED)
    streams = cursor.execute("SELECT count(DISTINCT stream) FROM gpu_op WHERE rank = $rank", {"rank": rank}).fetchone() or (0,)
    cursor.close()
    store.captured.add("sync")
    if rows is not None or streams[0] == 1:
        store.captured.add("event_record")


def _calls(store: Store, rank: int, kind_of: Callable[[str], str | None]) -> pa.Table:
    cursor = store.connection.cursor()
    names = cursor.execute("SELECT name_id, text FROM name WHERE name_id IN (SELECT name_id FROM api WHERE rank = $rank)", {"rank": rank}).fetchall()
    kinds = [(i, k) for i, text in names if (k := kind_of(plain_api(text)))]
    cursor.register("kinds", pa.table({"name_id": pa.array([i for i, _ in kinds], pa.int64()), "kind": pa.array([k for _, k in kinds], pa.string())}))
    calls = cursor.sql('SELECT rank, kind, start, "end", corr FROM api JOIN kinds USING (name_id) WHERE rank = $rank', params={"rank": rank}).to_arrow_table()
    cursor.close()
    return calls
