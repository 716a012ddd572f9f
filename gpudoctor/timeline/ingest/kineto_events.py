"""Decode a Kineto trace into typed events, whole or as far as it goes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.unpack import read_bytes

_FIRST_TIME = re.compile(rb'"ts":\s*"?(\d+)(\.\d)?')
_DIGITS_WITHOUT_LOSS = 13
Number = int | float | str | None


class Args(Struct, gc=False):
    """The arguments that gpudoctor reads, of any kind of event."""

    correlation: int | None = None
    external: int | None = field(default=None, name="External id")
    external_old: int | None = field(default=None, name="external id")
    stream: int | None = None
    device: int | None = None
    context: int | None = None
    bytes: int | None = None
    sync_kind: str | None = field(default=None, name="cuda_sync_kind")
    wait_stream: int | None = field(default=None, name="wait_on_stream")
    wait_corr: int | None = field(default=None, name="wait_on_cuda_event_record_corr_id")
    wait_event: int | None = field(default=None, name="wait_on_cuda_event_id")
    graph_node: int | None = field(default=None, name="graph node id")
    graph: int | None = field(default=None, name="graph id")
    call_stack: str | None = field(default=None, name="Call stack")
    python_id: int | None = field(default=None, name="Python id")
    memory_bytes: int | None = field(default=None, name="Bytes")
    address: int | None = field(default=None, name="Addr")
    device_id: int | None = field(default=None, name="Device Id")
    device_type: int | None = field(default=None, name="Device Type")
    allocated: int | None = field(default=None, name="Total Allocated")
    elements: int | None = field(default=None, name="In msg nelems")
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
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class Trace(Struct):
    """What is read of a trace file."""

    traceEvents: list[Event]
    distributedInfo: Distributed | None = None
    baseTimeNanoseconds: int | None = None
    deviceProperties: list[dict[str, Any]] | None = None
    with_stack: int | bool | None = None
    profile_memory: int | bool | None = None
    cuda_runtime_version: int | None = None
    hip_runtime_version: int | None = None
    schemaVersion: int | None = None


class ExactTrace(Trace):
    traceEvents: list[ExactEvent]  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Decoded:
    """A trace; `truncated` if its end is missing and the events before it were saved."""

    trace: Trace
    truncated: bool


def decode(path: Path) -> Decoded:
    """Read and decode one trace. InputError if it is no trace, or nothing of it can be read."""
    raw, cut = read_bytes(path)
    kind = ExactTrace if _needs_exact(raw) else Trace
    for attempt in range(2):
        try:
            return Decoded(_decode(raw, kind), cut or attempt > 0)
        except msgspec.ValidationError:
            return Decoded(_coerce(raw, path), cut or attempt > 0)
        except (msgspec.DecodeError, RecursionError) as error:
            end = raw.rfind(b"},")
            if attempt or end < 0 or b'"traceEvents"' not in raw[:end]:
                raise InputError(f"{path}: not readable as a Kineto trace ({error})") from None
            raw = raw[: end + 1] + b"]}"
    raise AssertionError("unreachable")


def _needs_exact(raw: bytes) -> bool:
    match = _FIRST_TIME.search(raw, 0, 1 << 22)
    return match is not None and match[2] is not None and len(match[1]) > _DIGITS_WITHOUT_LOSS


def _decode(raw: bytes, kind: type[Trace]) -> Trace:
    if raw.lstrip()[:1] == b"[":
        events = list[ExactEvent] if kind is ExactTrace else list[Event]
        return Trace(msgspec.json.decode(raw, type=events, strict=False))
    return msgspec.json.decode(raw, type=kind, strict=False)


def _coerce(raw: bytes, path: Path) -> Trace:
    """The slow way, for traces with fields of unexpected types: what does not fit becomes null."""
    whole = msgspec.json.decode(raw)
    events = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(events, list):
        raise InputError(f"{path}: JSON, but no Kineto trace (no list traceEvents)")
    trace = Trace([_event(e) for e in events if isinstance(e, dict)])
    if isinstance(whole, dict):
        for name in ("distributedInfo", "baseTimeNanoseconds", "deviceProperties", "with_stack", "profile_memory"):
            setattr(trace, name, _field(Trace, name, whole.get(name)))
    return trace


def _event(raw: dict[str, Any]) -> Event:
    args = raw.get("args")
    values = {n: v for n in ("ph", "cat", "name", "tid", "ts", "dur") if (v := _field(Event, n, raw.get(n))) is not None}
    event = Event(**values)
    if isinstance(args, dict):
        names = {f.encode_name: f.name for f in msgspec.structs.fields(Args)}
        event.args = Args(**{names[k]: _field(Args, names[k], v) for k, v in args.items() if k in names})
    return event


def _field(struct: type[Struct], name: str, value: Any) -> Any:
    if value is None:
        return None
    kind = next(f.type for f in msgspec.structs.fields(struct) if f.name == name)
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        return None
