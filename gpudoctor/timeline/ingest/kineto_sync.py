"""Synchronisation in Kineto traces: from its own rows if the profiler recorded them, else from the calls."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from gpudoctor.timeline.ingest.names import plain_api, records_event, sync_kind
from gpudoctor.timeline.store import Store

_FROM_ROWS = """SELECT y.rank, coalesce(c.kind, CASE lower(y.name)
        WHEN 'stream sync' THEN 'stream' WHEN 'event sync' THEN 'event' WHEN 'context sync' THEN 'device' WHEN 'device sync' THEN 'device'
        WHEN 'stream wait event' THEN 'stream_wait_event' ELSE CASE WHEN y.stream IS NULL THEN 'device' ELSE 'stream' END END) AS kind,
    y.context, y.stream, y.event, y.src_corr, y.start, y."end", y.corr
FROM rows y LEFT JOIN (FROM calls WHERE kind <> 'record') c ON c.corr = y.corr"""
_FROM_CALLS = """SELECT rank, kind, start, "end", corr FROM calls WHERE kind IN ('stream', 'event', 'device')"""
_RECORDS = """SELECT r.rank, {context}::BIGINT AS context, {event}::BIGINT AS event, {recorded}::BIGINT AS stream, r.corr, any_value(r.start) AS start
FROM calls r {join} WHERE r.kind = 'record' GROUP BY r.rank, r.corr"""
_NO_CALLS = pa.table({c: pa.array([], pa.string() if c == "kind" else pa.int64()) for c in ("rank", "start", "end", "corr", "kind")})
_RECORDS_TIED = _RECORDS.format(join="LEFT JOIN rows y ON y.src_corr = r.corr", context="any_value(y.context)", event="any_value(y.event)", recorded="any_value(y.recorded)")
_RECORDS_ALONE = _RECORDS.format(join="", context="NULL", event="NULL", recorded="NULL")


def add_sync(store: Store, api: pa.Table | None, rows: pa.Table | None, streams: int) -> None:
    """Fill sync and event_record of one rank from its calls, with their names, and from its rows of synchronisation.

    `event_record` counts as captured only if the profiler recorded synchronisation, or if there is but one stream:
    else who waits for whom is unknown.
    """
    if api is None and rows is None:
        return
    known = {"calls": _calls(api) if api is not None else _NO_CALLS} | ({} if rows is None else {"rows": rows})
    store.add("sync", store.compute(_FROM_CALLS if rows is None else _FROM_ROWS, **known))
    store.add("event_record", store.compute(_RECORDS_ALONE if rows is None else _RECORDS_TIED, **known), captured=rows is not None or streams == 1)


def _calls(api: pa.Table) -> pa.Table:
    """The calls that synchronise or record an event, with their `kind`."""
    names = api["name"].combine_chunks()
    kinds = pa.array([_kind(plain_api(text)) for text in names.dictionary.to_pylist()], pa.string()).take(names.indices)
    return api.select(["rank", "start", "end", "corr"]).append_column("kind", kinds).filter(pc.is_valid(kinds))


def _kind(api: str) -> str | None:
    return "record" if records_event(api) else sync_kind(api)
