"""Logs of NCCL, torch.distributed and their ranks → log_line, transport, env_var."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.log_grammar import Line, channel_of, init_of, parse_line, variable_of
from gpudoctor.timeline.store import Store

_SUFFIXES = (".log", ".txt", ".out", ".err")
_SIGNS = re.compile(rb"NCCL (INFO|WARN|TRACE|ERROR)|NCCL version \d|ProcessGroupNCCL|torch\.distributed|gloo/transport|ncclUnhandled|\[rank\d+\]:")
_MAX_LINE = 4000


def matches(head: bytes, path: Path) -> bool:
    """True for text that speaks of NCCL or torch.distributed, and for any plain text named like a log."""
    if head[:2] == b"\x1f\x8b":
        return any(path.name.endswith(s + ".gz") for s in _SUFFIXES)
    if head[:1] in (b"{", b"[") and path.suffix not in _SUFFIXES:
        return False
    if head.count(b"\0") > len(head) // 100:
        return False
    return bool(_SIGNS.search(head)) or path.suffix in _SUFFIXES


def read(path: Path, rank: int | None, store: Store) -> None:
    """Add the log's telling lines to the store.

    `rank` is the rank whose log this is, None if unknown or if several ranks share the log; NCCL's own words
    about ranks win over it. Raises InputError if the file cannot be read.
    """
    lines: list[Line] = []
    try:
        for number, text in enumerate(_texts(path), 1):
            if (line := parse_line(text, number)) is not None:
                lines.append(line)
    except (OSError, EOFError) as error:
        if not lines:
            raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}; give a log that can be read") from None
    ranks = _ranks(lines, rank)
    tables: dict[str, list[dict[str, Any]]] = {"log_line": [], "transport": [], "env_var": []}
    for line in lines:
        for table, row in _rows(line, ranks.get(line.process, rank)):
            tables[table].append(row | {"path": str(path), "line": line.number})
    for table, rows in tables.items():
        if rows:
            store.add_rows(table, rows)
        store.captured.add(table)


def _rows(line: Line, rank: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    if line.rank is not None:
        rank = line.rank
    channel = channel_of(line.text)
    if channel is not None:
        own, other = (channel.peer, channel.rank) if channel.receives else (channel.rank, channel.peer)
        yield "transport", {"rank": rank if own < 0 else own, "peer": other, "channel": channel.number, "kind": channel.kind, "detail": channel.detail, "host": line.host}
        return
    yield "log_line", {"rank": rank, "kind": line.kind, "level": line.level, "text": line.text, "host": line.host}
    variable = variable_of(line.text)
    if variable is not None:
        yield "env_var", {"rank": rank, "name": variable[0], "value": variable[1]}


def _ranks(lines: list[Line], rank: int | None) -> dict[tuple[str, int], int]:
    """Which rank each process of the log is: by its largest communicator, else by the channels it opened."""
    size: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, int], int] = {}
    for line in lines:
        if line.process == ("", 0):
            continue
        init = init_of(line.text)
        if init is not None and init.size > size.get(line.process, 0):
            size[line.process], found[line.process] = init.size, init.rank
    for line in lines:
        channel = channel_of(line.text)
        if channel is not None and channel.rank >= 0 and line.process != ("", 0):
            found.setdefault(line.process, channel.peer if channel.receives else channel.rank)
    if rank is not None and not found and len({line.process for line in lines}) == 1:
        found = {lines[0].process: rank}
    return found


def _texts(path: Path) -> Iterator[str]:
    with path.open("rb") as probe:
        packed = probe.read(2) == b"\x1f\x8b"
    opener = gzip.open if packed else open
    with opener(path, "rb") as stream:
        while raw := stream.readline(_MAX_LINE):
            yield raw.decode("utf-8", "replace").rstrip("\r\n")
            while len(raw) == _MAX_LINE and not raw.endswith(b"\n"):
                raw = stream.readline(_MAX_LINE)
