"""Synchronisation in Kineto traces: from its own rows if the profiler recorded them, else from the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from gpudoctor.timeline.ingest.kineto_events import Event
from gpudoctor.timeline.ingest.names import plain_api, records_event, sync_kind
from gpudoctor.timeline.store import Store

_ROW_KIND = {"stream sync": "stream", "event sync": "event", "context sync": "device", "device sync": "device", "stream wait event": "stream_wait_event"}
_FROM_ROWS = """INSERT INTO sync (rank, kind, context, stream, event, src_corr, start, "end", corr)
SELECT y.rank, coalesce(c.kind, y.kind), y.context, y.stream, y.event, y.src_corr, y.start, y."end", y.corr
FROM rows y LEFT JOIN calls c ON c.corr = y.corr"""
_FROM_CALLS = """INSERT INTO sync (rank, kind, start, "end", corr)
SELECT rank, kind, start, "end", corr FROM calls WHERE kind IN ('stream', 'event', 'device')"""
_RECORDS = """INSERT INTO event_record (rank, context, event, stream, corr, start)
SELECT r.rank, any_value(y.context), any_value(y.event), any_value(y.recorded), r.corr, any_value(r.start)
FROM records r LEFT JOIN rows y ON y.src_corr = r.corr GROUP BY r.rank, r.corr"""


def add_sync(store: Store, rank: int, events: list[Event], columns: Callable[[list[Event], bool], dict[str, Any]]) -> None:
    """Fill sync and event_record of one rank, whose calls are in `api` already.

    `event_record` counts as captured only if the profiler recorded synchronisation, or if there is but one stream:
    else who waits for whom is unknown.
    """
    if "api" not in store.captured and not events:
        return
    cursor = store.connection.cursor()
    cursor.register("calls", _calls(store, rank, sync_kind))
    cursor.register("records", _calls(store, rank, lambda api: "record" if records_event(api) else None))
    rows = _rows(events, columns)
    cursor.register("rows", rows)
    cursor.execute(_FROM_ROWS if events else _FROM_CALLS)
    cursor.execute(_RECORDS)
    streams = cursor.execute("SELECT count(DISTINCT stream) FROM gpu_op WHERE rank = $rank", {"rank": rank}).fetchone() or (0,)
    cursor.close()
    store.captured.add("sync")
    if events or streams[0] == 1:
        store.captured.add("event_record")


def _calls(store: Store, rank: int, kind_of: Callable[[str], str | None]) -> pa.Table:
    names = store.connection.execute("SELECT name_id, text FROM name WHERE name_id IN (SELECT name_id FROM api)").fetchall()
    kinds = [(i, k) for i, text in names if (k := kind_of(plain_api(text)))]
    cursor = store.connection.cursor()
    cursor.register("kinds", pa.table({"name_id": pa.array([i for i, _ in kinds], pa.int64()), "kind": pa.array([k for _, k in kinds], pa.string())}))
    calls = cursor.sql('SELECT rank, kind, start, "end", corr FROM api JOIN kinds USING (name_id) WHERE rank = $rank', params={"rank": rank}).to_arrow_table()
    cursor.close()
    return calls


def _rows(events: list[Event], columns: Callable[[list[Event], bool], dict[str, Any]]) -> pa.Table:
    args = [e.args for e in events if e.args]
    events = [e for e in events if e.args]
    shared = columns(events, False)
    kinds = [_ROW_KIND.get((a.sync_kind or e.name).lower(), "device" if a.stream in (None, -1) else "stream") for e, a in zip(events, args, strict=True)]
    return pa.table({
        "rank": shared["rank"], "start": shared["start"], "end": shared["end"], "kind": pa.array(kinds, pa.string()),
        **{name: _known([getattr(a, of) for a in args], least) for name, of, least in (
            ("context", "context", 0), ("stream", "stream", 0), ("event", "wait_event", 0), ("src_corr", "wait_corr", 1),
            ("recorded", "wait_stream", 0), ("corr", "correlation", 1),
        )},
    })


def _known(values: list[int | None], least: int) -> pa.Array:
    return pa.array([v if v is not None and least <= v < 4294967295 else None for v in values], pa.int64())
