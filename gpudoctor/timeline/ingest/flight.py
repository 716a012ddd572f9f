"""Dumps of PyTorch's flight recorder (pickle or JSON) → collective, group_state."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.plain_pickle import load_plain
from gpudoctor.timeline.store import Store

MAX_BYTES = 1 << 28

_MARKS = (b"pg_config", b"nccl_version", b"comm_lib_version", b"collective_seq_id")
_DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
}
_LIBRARY = re.compile(r"[/\\](site-packages|dist-packages|torch)[/\\]|^<")


def matches(head: bytes, path: Path) -> bool:
    """True if a file that begins with `head` looks like a flight recorder's dump."""
    return (head[:1] == b"\x80" or head.lstrip()[:1] == b"{") and b"traceEvents" not in head and any(mark in head for mark in _MARKS)


def rank_of(path: Path) -> int | None:
    """The rank that torch wrote at the end of a dump's name (`…_rank_12`, `dump_12.json`)."""
    found = re.search(r"(\d+)(?:\.[A-Za-z]\w*)*$", path.name)
    return int(found[1]) if found else None


def read(path: Path, rank: int, store: Store) -> None:
    """Add one rank's dump to the store; InputError if it is damaged or holds more than plain data."""
    dump = _load(path)
    entries = dump.get("entries", [])
    if not isinstance(entries, list) or ("entries" not in dump and "pg_config" not in dump and "pg_status" not in dump):
        raise InputError(f"{path}: not a flight recorder's dump (no entries)")
    try:
        rows = [_collective(rank, entry) for entry in entries]
        states = list(_groups(rank, dump, entries))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise InputError(f"{path}: damaged flight recorder's dump") from None
    store.add_rows("collective", rows)
    store.add_rows("group_state", states)
    store.captured |= {"collective", "group_state"}


def _load(path: Path) -> Mapping[str, Any]:
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
        if data[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(data)) as unpacked:
                data = unpacked.read(MAX_BYTES + 1)
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not data or len(data) > MAX_BYTES:
        raise InputError(f"{path}: empty, or larger than a flight recorder's dump can be ({MAX_BYTES} bytes)")
    if data[:1] == b"\x80":
        dump = load_plain(io.BytesIO(data), path.name)
    else:
        try:
            dump = json.loads(data)
        except (ValueError, RecursionError):
            raise InputError(f"{path}: damaged or truncated JSON") from None
    if not isinstance(dump, dict):
        raise InputError(f"{path}: not a flight recorder's dump")
    return dump


def _collective(rank: int, entry: Mapping[str, Any]) -> dict[str, Any]:
    p2p = bool(entry.get("is_p2p", False))
    sizes = entry.get("input_sizes") or []
    dtypes = entry.get("input_dtypes") or entry.get("output_dtypes") or []
    start = entry.get("time_discovered_started_ns") or entry.get("time_created_ns")
    place = _user_frame(entry.get("frames") or [])
    return {
        "rank": rank, "group": _name(entry["process_group"]), "op": str(entry["profiling_name"]).partition(":")[2] or str(entry["profiling_name"]),
        "dtype": _DTYPES.get(str(dtypes[0]), str(dtypes[0]).lower()) if dtypes else None, "state": str(entry["state"]),
        "seq": int(entry["p2p_seq_id" if p2p else "collective_seq_id"]), "p2p": p2p, "order": int(entry["record_id"]) if "record_id" in entry else None,
        "numel": sum(_product(s) for s in sizes), "shape": _text(sizes), "start": start,
        "end": max(start or 0, entry.get("time_discovered_completed_ns") or 0) or None,
        **({"path": place[0], "line": place[1], "func": place[2]} if place else {}),
    }


def _groups(rank: int, dump: Mapping[str, Any], entries: list[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """One row a group: its members, and how far this rank came in it."""
    members = {}
    config = dump.get("pg_config") or {}
    for name, group in config.items():
        members[_name((group.get("name", name), group.get("desc", "")))] = _ranks(group.get("ranks"))
    ids = {_name(e["process_group"]): str(e.get("pg_id")) for e in entries}
    status = dump.get("pg_status") or {}
    for group in sorted(members.keys() | ids.keys()):
        seqs = [int(e["collective_seq_id"]) for e in entries if _name(e["process_group"]) == group and not e.get("is_p2p")]
        known = status.get(ids.get(group, ""), {})
        sends = any(e.get("is_p2p") for e in entries if _name(e["process_group"]) == group)
        known = {} if sends else known
        waiting = [int(e["collective_seq_id"]) for e in entries if _name(e["process_group"]) == group and not e.get("is_p2p") and e["state"] != "completed"]
        ranks = members.get(group)
        yield {
            "rank": rank, "group": group, "members": ",".join(map(str, ranks)) if ranks else None, "size": len(ranks) if ranks else None,
            "enqueued": max(seqs) if seqs else _counter(known.get("last_enqueued_collective")),
            "completed": min(waiting) - 1 if waiting else max(seqs) if seqs else _counter(known.get("last_completed_collective")),
        }


def _counter(value: Any) -> int | None:
    return int(value) if value is not None and int(value) >= 0 else None


def _name(group: Any) -> str:
    name, description = (group[0], group[1]) if isinstance(group, (list, tuple)) else (group, "")
    return f"{name} {description}" if description and description != "undefined" else str(name)


def _ranks(text: Any) -> list[int]:
    return sorted({int(n) for n in re.findall(r"\d+", str(text or ""))})


def _product(shape: Any) -> int:
    count = 1
    for n in shape:
        count *= int(n)
    return count


def _text(sizes: Any) -> str:
    return " ".join("×".join(map(str, s)) or "scalar" for s in sizes[:4]) + (" …" if len(sizes) > 4 else "")


def _user_frame(frames: list[Mapping[str, Any]]) -> tuple[str, int, str] | None:
    for frame in frames:
        if not _LIBRARY.search(str(frame.get("filename", "<"))):
            return str(frame["filename"]), int(frame.get("line", 0)), str(frame.get("name", ""))
    return None
