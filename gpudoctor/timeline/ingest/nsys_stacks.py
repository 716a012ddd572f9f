"""Python frames around CUDA calls in an nsys report that was recorded with `--python-backtrace=cuda`.

nsys marks the start of a call with an NVTX event whose payload, exported with `--include-json`, holds the frames,
innermost first; functions and files are string ids, lines are those of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import unescape

import msgspec
import pyarrow as pa

from gpudoctor.timeline.ingest.names import is_library

SCHEMA = "Python Backtrace on CUDA"
INSERT = """INSERT INTO pystack (rank, corr, depth, file, line, func)
SELECT p.rank, corr, depth, file, line, func FROM raw JOIN stage.process p ON p.gpid = globalTid >> 24"""
MARK, BACKTRACE = 34, 67
"""Codes of NVTX marks, and of calls that were recorded once more with their backtrace."""
LONGEST_PAYLOAD = 1 << 18
_DEEPEST = 64


class _Frame(msgspec.Struct):
    function: int | None = msgspec.field(default=None, name="Function")
    file: int | None = msgspec.field(default=None, name="File")
    line: int | None = msgspec.field(default=None, name="Line")


class _Stack(msgspec.Struct):
    frames: list[_Frame] = msgspec.field(default_factory=list, name="Frames")


class _Payload(msgspec.Struct):
    stack: _Stack = msgspec.field(name=SCHEMA)


def frames_of(backtraces: Iterable[tuple[int, int, str]], texts: Callable[[pa.Array], dict[int, str]]) -> pa.Table:
    """Rows globalTid, corr, depth, file, line, func: the user's frames, and the innermost two whoever's they are.

    `backtraces` are (globalTid, correlation id, JSON payload); payloads of another form are passed over.
    """
    decode = msgspec.json.Decoder(_Payload).decode
    kept: list[tuple[int, int, int, _Frame]] = []
    for tid, corr, payload in backtraces:
        try:
            frames = decode(payload.encode()).stack.frames
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue
        kept += [(tid, corr, depth, frame) for depth, frame in enumerate(frames[:_DEEPEST])]
    ids = sorted({i for *_, f in kept for i in (f.function, f.file) if i is not None and 0 <= i < 1 << 62})
    named: dict[int | None, str] = {i: unescape(text) for i, text in texts(pa.array(ids, pa.int64())).items()}
    rows = [(tid, corr, depth, file, f.line, named.get(f.function)) for tid, corr, depth, f in kept
            if (file := named.get(f.file)) is not None and (depth <= 1 or not is_library(file)) and (f.line is None or 0 < f.line < 1 << 31)]
    types = {"globalTid": pa.int64(), "corr": pa.int64(), "depth": pa.int64(), "file": pa.string(), "line": pa.int64(), "func": pa.string()}
    return pa.table({name: pa.array([row[n] for row in rows], kind) for n, (name, kind) in enumerate(types.items())})
