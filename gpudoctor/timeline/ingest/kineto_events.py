"""A Kineto trace as batches of typed events, read as it streams in, so that its size does not matter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.unpack import chunks

_SIGNS = re.compile(rb'"(traceEvents|schemaVersion|deviceProperties|distributedInfo|baseTimeNanoseconds)"\s*:|^\s*\[\s*\{[^{}]{0,400}"ph"\s*:')
_START = re.compile(rb'^\s*(\[)|"traceEvents"\s*:\s*(\[)')
_FIRST_TIME = re.compile(rb'"ts":\s*"?(\d+)(\.\d)?')
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_BETWEEN = re.compile(rb'\}\s*,\s*\{\s*"')
_POSITION = re.compile(r"\(byte (\d+)\)")
_DIGITS_WITHOUT_LOSS = 13
_LONGEST_HEADER = 64 << 20
_LONGEST_EVENT = 256 << 20
_TRIES = 32
_NEAR = (1 << 15, 1 << 20)
_Decoder = msgspec.json.Decoder["list[Event]"]


def is_trace(head: bytes) -> bool:
    """True for JSON that begins like a Chrome trace."""
    return head.lstrip()[:1] in (b"{", b"[") and _SIGNS.search(head) is not None


class Args(Struct, gc=False):
    """The arguments that gpudoctor reads, of any kind of event."""

    correlation: int | None = None
    external: int | None = msgspec.field(default=None, name="External id")
    external_old: int | None = msgspec.field(default=None, name="external id")
    stream: int | None = None
    device: int | None = None
    context: int | None = None
    bytes: int | None = None
    sync_kind: str | None = msgspec.field(default=None, name="cuda_sync_kind")
    wait_stream: int | None = msgspec.field(default=None, name="wait_on_stream")
    wait_corr: int | None = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    wait_event: int | None = msgspec.field(default=None, name="wait_on_cuda_event_id")
    graph_node: int | None = msgspec.field(default=None, name="graph node id")
    graph: int | None = msgspec.field(default=None, name="graph id")
    call_stack: str | None = msgspec.field(default=None, name="Call stack")
    memory_bytes: int | None = msgspec.field(default=None, name="Bytes")
    address: int | None = msgspec.field(default=None, name="Addr")
    device_id: int | None = msgspec.field(default=None, name="Device Id")
    device_type: int | None = msgspec.field(default=None, name="Device Type")
    allocated: int | None = msgspec.field(default=None, name="Total Allocated")
    elements: int | None = msgspec.field(default=None, name="In msg nelems")
    dtype: str | None = None


class Event(Struct, gc=False):
    """One event; times in µs."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    tid: int | str | None = None
    ts: float = -1.0
    dur: float = 0.0
    args: Args | None = None


class ExactEvent(Event, gc=False):
    """An event whose times have more digits than a float holds."""

    ts: Decimal = Decimal(-1)  # type: ignore[assignment]
    dur: Decimal = Decimal(0)  # type: ignore[assignment]


class Distributed(Struct):
    """Which rank of how many wrote the trace."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class About(Struct):
    """What a trace says of itself, before or behind its events."""

    distributedInfo: Distributed | None = None
    baseTimeNanoseconds: int | None = None
    deviceProperties: list[dict[str, Any]] | None = None
    schemaVersion: int | None = None


@dataclass(slots=True)
class TraceFile:
    """One trace. After `batches` ran out, `about` is complete and `truncated` tells if the end was missing."""

    path: Path
    about: About = field(default_factory=About)
    truncated: bool = False

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events in batches of a few MiB of JSON. InputError if the file is no trace or nothing of it can be read."""
        stream = chunks(self.path)
        buffer = self._skip_header(stream)
        decoder: _Decoder = msgspec.json.Decoder(list[ExactEvent]) if _needs_exact(buffer) else msgspec.json.Decoder(list[Event])
        seen = ended = False
        while not ended:
            events, buffer, ended = _split(buffer, decoder)
            seen |= bool(events)
            yield events
            if ended:
                break
            if len(buffer) > _LONGEST_EVENT:
                raise InputError(f"{self.path}: an event of more than {_LONGEST_EVENT >> 20} MiB; not a trace that gpudoctor reads")
            piece = next(stream, b"")
            if not piece and not events:
                break
            buffer += piece
        if ended:
            self._add_about(b"{" + (buffer + b"".join(stream)).lstrip().removeprefix(b","))
        elif seen:
            self.truncated = True
        else:
            raise InputError(f"{self.path}: not readable as a Kineto trace: no whole event in it")

    def _skip_header(self, stream: Iterator[bytes]) -> bytes:
        buffer = b""
        for piece in stream:
            buffer += piece
            match = _START.search(buffer)
            if match is not None:
                begin = max(match.end(1), match.end(2))
                if match[2]:
                    self._add_about(buffer[: match.start()].rstrip().rstrip(b",") + b"}")
                more = next(stream, b"")
                return buffer[begin:] + more
            if len(buffer) > _LONGEST_HEADER:
                break
        raise InputError(f"{self.path}: JSON, but no Kineto trace (no list traceEvents)")

    def _add_about(self, text: bytes) -> None:
        try:
            raw = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        if isinstance(raw, dict):
            for name in About.__struct_fields__:
                if (value := _field(About, name, raw.get(name))) is not None:
                    setattr(self.about, name, value)


def _needs_exact(buffer: bytes) -> bool:
    match = _FIRST_TIME.search(buffer)
    return match is not None and match[2] is not None and len(match[1]) > _DIGITS_WITHOUT_LOSS


def _split(buffer: bytes, decoder: _Decoder) -> tuple[list[Event], bytes, bool]:
    """Decode the whole events at the front of `buffer`: they, what is left, and whether the list ended.

    The cut is the last end of an object before which everything parses: braces in strings or arguments do not.
    """
    buffer = buffer.lstrip(b", \t\r\n")
    if buffer.startswith(b"]"):
        return [], buffer[1:], True
    broken = len(buffer)
    for cut in _cuts(buffer):
        if cut > broken:
            continue
        text = b"[" + (buffer[:cut] + b"]" if cut else buffer)
        try:
            return _decode(text, decoder), buffer[cut:] if cut else b"", not cut
        except msgspec.DecodeError as error:
            if match := _TRAILING.search(str(error)):
                end = int(match[1]) - 1
                return _decode(text[:end], decoder), buffer[end - 1 :], True
            if match := _POSITION.search(str(error)):
                broken = int(match[1])
                if cut := buffer.rfind(b"},", 0, broken) + 1:
                    with suppress(msgspec.DecodeError):
                        return _decode(b"[" + buffer[:cut] + b"]", decoder), buffer[cut:], False
        except RecursionError:
            pass
    return [], buffer, False


def _cuts(buffer: bytes) -> Iterator[int]:
    """Where events may end, best guesses first; 0 stands for all of the buffer."""
    for near in _NEAR:
        yield from reversed([m.start() + 1 for m in _BETWEEN.finditer(buffer, max(len(buffer) - near, 0))][-_TRIES:])
    for eighths in range(7, 0, -1):
        if match := _BETWEEN.search(buffer, len(buffer) * eighths // 8):
            yield match.start() + 1
    yield 0


def _decode(text: bytes, decoder: _Decoder) -> list[Event]:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        raw = msgspec.json.decode(text)
        return [_event(e) for e in raw if isinstance(e, dict)]
    except msgspec.DecodeError as error:
        clean = text.decode("utf-8", "surrogateescape").encode("utf-8", "replace") if "UTF-8" in str(error) else text
        if clean == text:
            raise
        return _decode(clean, decoder)


def _event(raw: dict[str, Any]) -> Event:
    """The slow way, for a batch with fields of unexpected types: what does not fit is left out."""
    args = raw.get("args")
    event = Event(**{n: v for n in ("ph", "cat", "name", "tid", "ts", "dur") if (v := _field(Event, n, raw.get(n))) is not None})
    if isinstance(args, dict):
        event.args = Args(**{_ARGS[k]: _field(Args, _ARGS[k], v) for k, v in args.items() if k in _ARGS})
    return event


_ARGS = {f.encode_name: f.name for f in msgspec.structs.fields(Args)}
_TYPES: dict[tuple[type[Struct], str], Any] = {(s, f.name): f.type for s in (Args, Event, About) for f in msgspec.structs.fields(s)}


def _field(struct: type[Struct], name: str, value: Any) -> Any:
    if value is None:
        return None
    try:
        return msgspec.convert(value, _TYPES[struct, name], strict=False)
    except msgspec.ValidationError:
        return None
