"""Python frames around CUDA calls in an nsys report that was recorded with `--python-backtrace=cuda`.

nsys marks the start of a call with an NVTX event whose payload, exported with `--include-json`, holds the frames,
innermost first; functions and files are string ids, lines are those of the call.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from html import unescape

import msgspec
import numpy as np
import pyarrow as pa

from gpudoctor.timeline.ingest.names import is_library

SCHEMA = "Python Backtrace on CUDA"
INSERT = """INSERT INTO pystack (rank, corr, depth, file, line, func)
SELECT p.rank, c.corr, f.depth, f.file, f.line, f.func FROM call c JOIN frame f USING (stack) JOIN stage.process p ON p.gpid = c.globalTid >> 24"""
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


def stacks_of(backtraces: Iterable[tuple[int, int, str]], texts: Callable[[pa.Array], dict[int, str]]) -> dict[str, pa.Table]:
    """Table `call` (globalTid, corr, stack) and table `frame` (stack, depth, file, line, func) for `INSERT`.

    `backtraces` are (globalTid, correlation id, JSON payload); a training loop repeats few payloads, so each is decoded
    once. Of a stack the user's frames are kept, and the innermost two whoever's they are. Payloads of another form are passed over.
    """
    tids, corrs, stacks = array("q"), array("q"), array("q")
    known: dict[str, int] = {}
    for tid, corr, payload in backtraces:
        for values, value in ((tids, tid), (corrs, corr), (stacks, known.setdefault(payload, len(known)))):
            values.append(value)
    call = pa.table({name: pa.array(np.asarray(values, dtype=np.int64)) for name, values in (("globalTid", tids), ("corr", corrs), ("stack", stacks))})
    return {"call": call, "frame": _frames(known, texts)}


def _frames(known: dict[str, int], texts: Callable[[pa.Array], dict[int, str]]) -> pa.Table:
    decode = msgspec.json.Decoder(_Payload).decode
    found: list[tuple[int, int, _Frame]] = []
    for payload, stack in known.items():
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            found += [(stack, depth, frame) for depth, frame in enumerate(decode(payload.encode()).stack.frames[:_DEEPEST])]
    ids = sorted({i for *_, f in found for i in (f.function, f.file) if i is not None and 0 <= i < 1 << 62})
    named: dict[int | None, str] = {i: unescape(text) for i, text in texts(pa.array(ids, pa.int64())).items()}
    rows = [(stack, depth, file, f.line, named.get(f.function)) for stack, depth, f in found
            if (file := named.get(f.file)) is not None and (depth <= 1 or not is_library(file)) and (f.line is None or 0 < f.line < 1 << 31)]
    types = {"stack": pa.int64(), "depth": pa.int64(), "file": pa.string(), "line": pa.int64(), "func": pa.string()}
    return pa.table({name: pa.array([row[n] for row in rows], kind) for n, (name, kind) in enumerate(types.items())})
