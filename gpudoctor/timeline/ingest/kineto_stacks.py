"""Python frames around CUDA calls: from the profiler's python_function events, or from operators' call stacks."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpudoctor.timeline.ingest.names import is_library
from gpudoctor.timeline.store import Store

_FRAME = re.compile(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<func>.*)$", re.DOTALL)
_DEEPEST = 64

_STACKS = f"""WITH f AS (
    SELECT *, row_number() OVER (PARTITION BY tid ORDER BY start, "end" DESC, nth) - 1 AS before FROM frames
), ends AS (
    SELECT tid, "end" AS t, row_number() OVER (PARTITION BY tid ORDER BY "end") AS n FROM frames
), leveled AS (
    SELECT f.tid, f.start, f."end", f.frame_id, greatest(f.before - coalesce(e.n, 0), 0) AS level
    FROM f ASOF LEFT JOIN ends e ON f.tid = e.tid AND f.start >= e.t
), wanted AS (
    SELECT rank, tid, corr, start, level FROM calls, (SELECT DISTINCT level FROM leveled WHERE level < {_DEEPEST}) WHERE corr IS NOT NULL
), around AS (
    SELECT w.rank, w.corr, l.level, l.frame_id
    FROM wanted w ASOF JOIN leveled l ON w.tid = l.tid AND w.level = l.level AND w.start >= l.start
    WHERE l."end" >= w.start
), counted AS (
    SELECT *, max(level) OVER (PARTITION BY rank, corr) - level AS depth FROM around
)
SELECT c.rank, c.corr, c.depth, t.file, t.line, t.func
FROM counted c JOIN frame t USING (frame_id)
WHERE t.user OR c.depth <= 1"""
_OPERATOR_STACKS = """SELECT c.rank, c.corr, f.depth, f.file, f.line, f.func
FROM calls c JOIN (SELECT external, any_value(stack) AS stack FROM stacks GROUP BY external) s USING (external) JOIN frame f USING (stack)
WHERE c.corr IS NOT NULL"""


def add_stacks(store: Store, tables: dict[str, pa.Table]) -> None:
    """Fill pystack for the CUDA calls of one rank: the user's frames around each, and the innermost two whoever's they are (a builtin and its caller).

    Takes the frames and stacks out of `tables`.
    """
    frames, calls, operators = tables.pop("python", None), tables.get("api"), tables.get("op")
    if calls is None:
        return
    if frames is not None:
        _from_frames(store, frames, calls)
    elif operators is not None and operators["stack"].null_count < len(operators):
        _from_operators(store, operators, calls)


def _from_frames(store: Store, frames: pa.Table, calls: pa.Table) -> None:
    names = frames["name"].combine_chunks()
    numbered = frames.select(["tid", "start", "end"]).append_column("frame_id", names.indices.cast(pa.int64()))
    store.add("pystack", store.compute(_STACKS, frame=_frame_table(names.dictionary.to_pylist()), calls=calls,
                                       frames=numbered.append_column("nth", pa.array(range(len(frames)), pa.int64()))))


def _from_operators(store: Store, operators: pa.Table, calls: pa.Table) -> None:
    stacks = operators.select(["external", "stack"]).drop_null()
    texts = pc.unique(stacks["stack"])
    rows: dict[str, list[Any]] = {name: [] for name in ("stack", "depth", "file", "line", "func")}
    for text in texts.to_pylist():
        for depth, frame in enumerate(text.split(";")[:_DEEPEST]):
            file, line, func, user = _parse(frame)
            if user or depth <= 1:
                for name, value in zip(rows, (text, depth, file, line, func), strict=True):
                    rows[name].append(value)
    types = {"depth": pa.int64(), "line": pa.int64()}
    frame = pa.table({n: pa.array(v, types.get(n, pa.string())) for n, v in rows.items()})
    store.add("pystack", store.compute(_OPERATOR_STACKS, stacks=stacks, calls=calls, frame=frame))


def _frame_table(texts: list[str]) -> pa.Table:
    parsed = [_parse(text) for text in texts]
    return pa.table({
        "frame_id": pa.array(range(len(texts)), pa.int64()), "file": pa.array([p[0] for p in parsed], pa.string()), "line": pa.array([p[1] for p in parsed], pa.int64()),
        "func": pa.array([p[2] for p in parsed], pa.string()), "user": pa.array([p[3] for p in parsed], pa.bool_()),
    })


def _parse(frame: str) -> tuple[str | None, int | None, str, bool]:
    """File, line, function, and whether the frame is the user's: `train.py(41): step`."""
    match = _FRAME.match(frame.strip())
    if match is None or len(match["line"]) > 9:
        return None, None, frame[:200], False
    return match["file"], int(match["line"]), match["func"][:200], not is_library(match["file"])
