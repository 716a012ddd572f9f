"""The timeline as a Chrome trace for ui.perfetto.dev: GPU streams, host calls, ranges, steps, and findings as tracks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from gpudoctor.model import Report
from gpudoctor.timeline.store import Store

_FINDINGS, _UNORDERED, _STEPS, _EXPOSED, _GAPS = range(1, 6)
_FIRST_STREAM, _FIRST_THREAD = 100, 100_000
_SPANS = {
    _UNORDERED: ("work that started too early", """SELECT o.rank, o.start, greatest(o.producer_end, o.start + 1) AS "end", coalesce(n.text, o.relation) AS name
        FROM stream_order o LEFT JOIN name n ON n.name_id = o.name_id WHERE o.verdict IN ('missing', 'wrong_order')"""),
    _STEPS: ("steps", "SELECT rank, start, \"end\", 'step ' || step AS name FROM step"),
    _EXPOSED: ("exposed communication", "SELECT rank, start, \"end\", 'exposed on GPU ' || device AS name FROM exposed_comm"),
    _GAPS: ("idle gaps", "SELECT rank, start, \"end\", 'idle: ' || cause AS name FROM gap WHERE ns >= 20000"),
}
_WORK = """SELECT o.rank, o.device, o.stream, o.start, o."end", coalesce(n.text, o.kind) AS name, o.kind, o.corr, o.bytes, o.step
FROM op o LEFT JOIN name n ON n.name_id = o.name_id ORDER BY o.rank, o.device, o.stream, o.start, o.corr"""
_HOST = {
    "ranges": 'SELECT v.rank, v.tid, v.start, v."end", n.text AS name, NULL AS corr FROM nvtx v JOIN name n USING (name_id) WHERE v."end" IS NOT NULL ORDER BY v.rank, v.tid, v.start, v."end" DESC',
    "calls": 'SELECT h.rank, h.tid, h.start, h."end", n.text AS name, h.corr FROM host_call h JOIN name n USING (name_id) ORDER BY h.rank, h.tid, h.start, h.corr',
}


def render(report: Report, store: Store, stream: TextIO) -> None:
    """Write one Chrome trace; times are µs since the first event. Names come from the capture and are written as JSON text."""
    bounds = store.query('SELECT min(start) AS t FROM (SELECT start FROM op UNION ALL SELECT start FROM nvtx UNION ALL SELECT start FROM host_call)')
    zero = bounds[0]["t"] or 0
    stream.write('{"displayTimeUnit": "ns", "otherData": {"tool": "gpudoctor"}, "traceEvents": [')
    separator = "\n"
    for event in _events(report, store, zero):
        stream.write(separator + json.dumps(event, ensure_ascii=False, default=str, allow_nan=False))
        separator = ",\n"
    stream.write("\n]}\n")


def _events(report: Report, store: Store, zero: int) -> Iterator[dict[str, Any]]:
    tracks: dict[tuple[int, int], str] = {}
    yield from _findings(report, store, zero, tracks)
    for tid, (title, sql) in _SPANS.items():
        for row in store.query(f"{sql} ORDER BY ALL"):
            yield _slice(tracks, row["rank"], tid, title, row["name"], row["start"], row["end"], zero)
    yield from _work(store, zero, tracks)
    yield from _host(store, zero, tracks)
    yield from _names(tracks)


def _findings(report: Report, store: Store, zero: int, tracks: dict[tuple[int, int], str]) -> Iterator[dict[str, Any]]:
    last = store.query('SELECT max("end") AS t FROM op')[0]["t"] or zero
    for finding in report.findings:
        for evidence in finding.evidence:
            arguments = {"message": finding.message, "fix": finding.fix, "severity": finding.severity.name, "confidence": finding.confidence.name,
                         "place": f"{finding.location.path}:{finding.location.line}" if finding.location else None, "count": evidence.count, "cost_ns": evidence.cost_ns}
            start = zero if evidence.start_ns is None else evidence.start_ns
            end = last if evidence.start_ns is None else evidence.end_ns if evidence.end_ns is not None else start
            name = f"{finding.rule} {finding.name}"
            rank = 0 if evidence.rank is None else evidence.rank
            if end > start:
                yield _slice(tracks, rank, _FINDINGS, "findings", name, start, end, zero, arguments)
            else:
                tracks[rank, _FINDINGS] = "findings"
                yield {"ph": "i", "s": "p", "pid": rank, "tid": _FINDINGS, "name": name, "cat": "finding", "ts": (start - zero) / 1000, "args": arguments}


def _work(store: Store, zero: int, tracks: dict[tuple[int, int], str]) -> Iterator[dict[str, Any]]:
    numbers: dict[tuple[int, int, int], int] = {}
    for row in store.query(_WORK):
        key = (row["rank"], row["device"], row["stream"])
        tid = numbers.setdefault(key, _FIRST_STREAM + len(numbers))
        yield _slice(tracks, row["rank"], tid, f"GPU {row['device']} stream {row['stream']}", row["name"], row["start"], row["end"], zero,
                     {k: row[k] for k in ("corr", "bytes", "step") if row[k] is not None}, row["kind"])


def _host(store: Store, zero: int, tracks: dict[tuple[int, int], str]) -> Iterator[dict[str, Any]]:
    numbers: dict[tuple[int, int, str], int] = {}
    for what, sql in _HOST.items():
        for row in store.query(sql):
            key = (row["rank"], row["tid"] or 0, what)
            tid = numbers.setdefault(key, _FIRST_THREAD + len(numbers))
            yield _slice(tracks, row["rank"], tid, f"thread {row['tid']} {what}", row["name"], row["start"], row["end"], zero, {"corr": row["corr"]} if row["corr"] is not None else {})


def _slice(tracks: dict[tuple[int, int], str], rank: int | None, tid: int, track: str, name: str, start: int, end: int, zero: int,
           arguments: dict[str, Any] | None = None, category: str = "gpudoctor") -> dict[str, Any]:
    tracks[rank or 0, tid] = track
    return {"ph": "X", "pid": rank or 0, "tid": tid, "name": name, "cat": category, "ts": (start - zero) / 1000, "dur": (end - start) / 1000, "args": arguments or {}}


def _names(tracks: dict[tuple[int, int], str]) -> Iterable[dict[str, Any]]:
    for rank in sorted({r for r, _ in tracks}):
        yield {"ph": "M", "pid": rank, "tid": 0, "name": "process_name", "args": {"name": f"rank {rank}"}}
    for (rank, tid), title in sorted(tracks.items()):
        yield {"ph": "M", "pid": rank, "tid": tid, "name": "thread_name", "args": {"name": title}}
        yield {"ph": "M", "pid": rank, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}
