"""Python frames around CUDA calls: from the profiler's python_function events, or from operators' call stacks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from gpudoctor.timeline.ingest.kineto_events import Event
from gpudoctor.timeline.store import Store

_FRAME = re.compile(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<func>.*)$", re.DOTALL)
_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages|lib/python3[^/]*|torch)/|^<|^importlib")
_DEEPEST = 64
_MOST_ROWS = 4_000_000

_STACKS = """INSERT INTO pystack (rank, corr, depth, file, line, func)
WITH f AS (
    SELECT *, row_number() OVER (PARTITION BY tid ORDER BY start, "end" DESC, nth) - 1 AS before FROM frames
), ends AS (
    SELECT tid, "end" AS t, row_number() OVER (PARTITION BY tid ORDER BY "end") AS n FROM frames
), leveled AS (
    SELECT f.tid, f.start, f."end", f.nth, f.frame, greatest(f.before - coalesce(e.n, 0), 0) AS level
    FROM f ASOF LEFT JOIN ends e ON f.tid = e.tid AND f.start >= e.t
), wanted AS (
    SELECT rank, tid, corr, start, level FROM calls, (SELECT DISTINCT level FROM leveled WHERE level < $deepest)
), around AS (
    SELECT w.rank, w.corr, l.level, l.frame
    FROM wanted w ASOF JOIN leveled l ON w.tid = l.tid AND w.level = l.level AND w.start >= l.start
    WHERE l."end" >= w.start
), counted AS (
    SELECT *, max(level) OVER (PARTITION BY rank, corr) - level AS depth FROM around
)
SELECT c.rank, c.corr, c.depth, t.file, t.line, t.func
FROM counted c JOIN frame t ON t.frame = c.frame
WHERE t.user OR c.depth = 0"""


def add_stacks(store: Store, rank: int, frames: list[Event], calls: list[Event], operators: list[Event], columns: Callable[[list[Event], bool], dict[str, Any]]) -> None:
    """Fill pystack for CUDA calls: the user's frames around each, and the innermost whoever's it is."""
    if frames:
        _from_events(store, frames, calls, columns)
    elif any(e.args and e.args.call_stack for e in operators[:10_000]):
        _from_operators(store, rank, operators, calls)
    else:
        return
    store.captured.add("pystack")


def _from_events(store: Store, frames: list[Event], calls: list[Event], columns: Callable[[list[Event], bool], dict[str, Any]]) -> None:
    shown = {name: nth for nth, name in enumerate(dict.fromkeys(e.name for e in frames))}
    called = [e for e in calls if e.args and e.args.correlation is not None]
    shared, host = columns(frames, False), columns(called, False)
    cursor = store.connection.cursor()
    cursor.register("frame", _frame_table(shown))
    cursor.register("frames", pa.table({
        "tid": shared["tid"], "start": shared["start"], "end": shared["end"],
        "frame": pa.array([shown[e.name] for e in frames], pa.int64()), "nth": pa.array(range(len(frames)), pa.int64()),
    }))
    cursor.register("calls", pa.table({
        "rank": host["rank"], "tid": host["tid"], "start": host["start"], "corr": pa.array([e.args.correlation if e.args else None for e in called], pa.int64()),
    }))
    cursor.execute(_STACKS, {"deepest": _DEEPEST})
    cursor.close()


def _from_operators(store: Store, rank: int, operators: list[Event], calls: list[Event]) -> None:
    stacks = {_external(e): e.args.call_stack for e in operators if e.args and e.args.call_stack}
    parsed: dict[str, list[tuple[int, tuple[str | None, int | None, str]]]] = {}
    rows: list[dict[str, Any]] = []
    for call in calls:
        stack = stacks.get(_external(call))
        if not stack or call.args is None or call.args.correlation is None or len(rows) > _MOST_ROWS:
            continue
        if stack not in parsed:
            listed = [_parse(f) for f in stack.split(";")[:_DEEPEST]]
            parsed[stack] = [(depth, f[:3]) for depth, f in enumerate(listed) if f[3] or depth == 0]
        rows += [{"rank": rank, "corr": call.args.correlation, "depth": d, "file": f, "line": n, "func": w} for d, (f, n, w) in parsed[stack]]
    store.add_rows("pystack", rows)


def _external(event: Event) -> int | None:
    args = event.args
    return None if args is None else args.external if args.external is not None else args.external_old


def _frame_table(shown: dict[str, int]) -> pa.Table:
    parsed = [_parse(name) for name in shown]
    return pa.table({
        "frame": pa.array(shown.values(), pa.int64()), "file": pa.array([p[0] for p in parsed], pa.string()),
        "line": pa.array([p[1] for p in parsed], pa.int64()), "func": pa.array([p[2] for p in parsed], pa.string()),
        "user": pa.array([p[3] for p in parsed], pa.bool_()),
    })


def _parse(frame: str) -> tuple[str | None, int | None, str, bool]:
    """File, line, function, and whether the frame is the user's: `train.py(41): step`."""
    match = _FRAME.match(frame.strip())
    if match is None or len(match["line"]) > 9:
        return None, None, frame[:200], False
    return match["file"], int(match["line"]), match["func"][:200], _LIBRARY.search(match["file"]) is None
