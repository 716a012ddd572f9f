"""Seeded damage to captures: what killed recorders, full disks, other versions and bad people make of them."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

BASES = Path(__file__).parents[1] / "data" / "captures"
HOSTILE = (
    "'; DROP TABLE gpu_op; --", "\x1b[31mred\x1b[0m\x1b]0;title\x07", "<script>alert(1)</script>", "[bold]markup[/bold] [link=file:///etc/passwd]",
    "::error file=a::owned", "%n%s%x", "..\\..\\..\\etc\\passwd", "\u202egnp.exe", "a\x00b", "{cost:ns}{0.__class__}", "🧨" * 50, "\ud7ff\ufffd", "$x {x}", "",
)
NUMBERS = (0, -1, 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, -(2**63), 10**18)
_EVENTS = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION", "CUDA_EVENT")
_TABLES = (*(f"CUPTI_ACTIVITY_KIND_{e}" for e in _EVENTS), "NVTX_EVENTS", "StringIds", "CUDA_GPU_MEMORY_USAGE_EVENTS",
           "TARGET_INFO_CUDA_STREAM", "TARGET_INFO_CUDA_CONTEXT_INFO", "TARGET_INFO_GPU", "META_DATA_EXPORT", "META_DATA_CAPTURE", "TARGET_INFO_SESSION_START_TIME")


def mutant(seed: int, folder: Path) -> Path:
    """Write the mutant of that number into `folder` and return it; the same number gives the same file."""
    rng = random.Random(seed)
    base = rng.choice(sorted(p for p in BASES.iterdir() if p.name.endswith(".gz")))
    raw = gzip.decompress(base.read_bytes())
    path = folder / f"m{seed}{'.sqlite' if 'sqlite' in base.name else '.json'}"
    if rng.random() < 0.3:
        raw = _bytes(rng, raw)
    elif path.suffix == ".sqlite":
        path.write_bytes(raw)
        _sqlite(rng, path)
        raw = path.read_bytes()
    else:
        raw = _json(rng, raw)
    if rng.random() < 0.15:
        packed = gzip.compress(raw, 1)
        raw = packed[: rng.randrange(1, len(packed))] if rng.random() < 0.5 else packed
        path = path.with_name(path.name + ".gz")
    path.write_bytes(raw)
    return path


def _bytes(rng: random.Random, raw: bytes) -> bytes:
    choice = rng.randrange(5)
    if choice == 0:
        return raw[: rng.randrange(len(raw))]
    data = bytearray(raw)
    if choice == 1:
        for _ in range(rng.choice((1, 10, 1000))):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif choice == 2:
        begin = rng.randrange(len(data))
        data[begin : begin + rng.randrange(1, 20_000)] = b""
    elif choice == 3:
        begin = rng.randrange(len(data))
        data[begin : begin + 4096] = bytes(4096)
    else:
        data += bytes(rng.randrange(256) for _ in range(rng.randrange(5000)))
    return bytes(data)


def _sqlite(rng: random.Random, path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        for _ in range(rng.randrange(1, 6)):
            with suppress(sqlite3.Error):
                _sqlite_step(rng, db)
        db.commit()


def _sqlite_step(rng: random.Random, db: sqlite3.Connection) -> None:
    table = rng.choice(_TABLES)
    columns = [r[1] for r in db.execute(f"PRAGMA table_info('{table}')")]
    if not columns:
        return
    column, some = rng.choice(columns), f"rowid % {rng.choice((1, 2, 7))} = 0"
    steps: tuple[Callable[[], Any], ...] = (
        lambda: db.execute(f"DROP TABLE {table}"),
        lambda: db.execute(f"DELETE FROM {table}"),
        lambda: db.execute(f'ALTER TABLE {table} DROP COLUMN "{column}"'),
        lambda: db.execute(f'ALTER TABLE {table} RENAME COLUMN "{column}" TO other'),
        lambda: db.execute(f'UPDATE OR IGNORE {table} SET "{column}" = NULL WHERE {some}'),
        lambda: db.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ? WHERE {some}', (rng.choice(NUMBERS),)),
        lambda: db.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ? WHERE {some}', (rng.choice(HOSTILE),)),
        lambda: db.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ? WHERE {some}', (rng.random() * 1e300,)),
        lambda: db.execute(f'UPDATE OR IGNORE {table} SET "{column}" = ? WHERE {some}', (b"\xff\xfe\x00blob",)),
        lambda: db.execute(f'UPDATE OR IGNORE {table} SET "{column}" = abs(random()) % 1000 WHERE {some}'),
        lambda: db.execute(f'UPDATE {table} SET "end" = start - 1000 WHERE {some}'),
        lambda: db.execute(f'UPDATE {table} SET start = -start WHERE {some}'),
        lambda: db.execute(f'UPDATE {table} SET start = start + ?, "end" = "end" + ? WHERE {some}', (2**62, 2**62)),
        lambda: db.execute(f"UPDATE StringIds SET value = ? WHERE {some}", (rng.choice(HOSTILE),)),
        lambda: db.execute("UPDATE StringIds SET value = ? WHERE id = (SELECT max(id) FROM StringIds)", ("A" * rng.choice((10_000, 5_000_000)),)),
        lambda: db.execute("UPDATE NVTX_EVENTS SET text = ? || rowid", ("x" * 20_000,)),
        lambda: db.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM {table}"),
        lambda: (db.execute(f"DROP TABLE {table}"), db.execute(f"CREATE VIEW {table} AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT * FROM n")),
        lambda: (db.execute(f"DROP TABLE {table}"), db.execute(f"CREATE TABLE {table} (nothing TEXT)"), db.execute(f"INSERT INTO {table} VALUES ('x')")),
        lambda: db.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 7"),
        lambda: db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET streamId = rowid, contextId = rowid % 50"),
        lambda: db.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = (rowid % 200) << 24"),
    )
    rng.choice(steps)()


def _json(rng: random.Random, raw: bytes) -> bytes:
    trace = json.loads(raw)
    for _ in range(rng.randrange(1, 6)):
        _json_step(rng, trace)
    text = json.dumps(trace, allow_nan=True)
    if rng.random() < 0.1:
        text = text.replace(rng.choice(('"ts"', '"args"', '"ph"', "}, {", '"dur"')), rng.choice(('"x"', "", "[", "\x00")), rng.choice((1, 1000)))
    return text.encode("utf-8", "surrogatepass")


def _json_step(rng: random.Random, trace: dict[str, Any]) -> None:
    events = trace.get("traceEvents")
    if not isinstance(events, list) or not events:
        return
    hit = [e for e in rng.sample(events, min(len(events), rng.choice((1, 50, len(events))))) if isinstance(e, dict)]
    odd: Any = rng.choice((None, True, "text", [], {}, 1.5, float("nan"), float("inf"), -1, 2**63, 2**70, 1e300, rng.choice(NUMBERS), rng.choice(HOSTILE)))
    field = rng.choice(("ph", "cat", "name", "tid", "pid", "ts", "dur", "args"))
    arg = rng.choice(("correlation", "stream", "device", "context", "bytes", "External id", "wait_on_cuda_event_record_corr_id", "cuda_sync_kind", "Bytes", "Addr"))
    choice = rng.randrange(12)
    if choice == 0:
        for event in hit:
            event.pop(field, None)
    elif choice == 1:
        for event in hit:
            event[field] = odd
    elif choice in (2, 3):
        for event in hit:
            if isinstance(event.get("args"), dict):
                event["args"][arg] = odd
    elif choice == 4:
        for event in hit:
            event["dur"] = -5
    elif choice == 5:
        for event in hit:
            event["name"] = rng.choice(HOSTILE)
    elif choice == 6:
        hit[0]["name"] = "N" * 5_000_000
    elif choice == 7:
        trace.pop(rng.choice(list(trace)))
    elif choice == 8:
        trace[rng.choice(("distributedInfo", "baseTimeNanoseconds", "deviceProperties", "schemaVersion", "traceEvents"))] = odd
    elif choice == 9:
        nested: Any = 1
        for _ in range(rng.choice((50, 900))):
            nested = [nested]
        hit[0]["args"] = {"correlation": nested}
    elif choice == 10:
        rng.shuffle(events)
    else:
        events.extend(hit * rng.choice((1, 3)))
