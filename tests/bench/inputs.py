"""Inputs of the benchmarks: an nsys report with its steps marked, one repeated, or one Kineto trace as several ranks."""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

_TIMED = ("KERNEL", "MEMCPY", "MEMSET", "RUNTIME", "SYNCHRONIZATION")
TABLES = (*(f"CUPTI_ACTIVITY_KIND_{t}" for t in _TIMED), "NVTX_EVENTS")


def longer_report(source: Path, times: int, target: Path) -> None:
    """Copy an nsys export and repeat its events `times` over, with later times and further correlation ids."""
    shutil.copyfile(source, target)
    with closing(sqlite3.connect(target)) as db:
        low, high, most = db.execute('SELECT min(start), max("end"), max(correlationId) FROM CUPTI_ACTIVITY_KIND_RUNTIME').fetchone()
        shift = {"start": high - low + 1_000_000, "end": high - low + 1_000_000, "correlationId": most}
        db.execute("CREATE TEMP TABLE nth AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT i FROM n WHERE i < ?", (times, times))
        for table in TABLES:
            columns = [r[1] for r in db.execute(f"PRAGMA table_info({table})")]
            picked = ", ".join(f'"{c}" + {shift[c]} * i' if c in shift else f'"{c}"' for c in columns)
            db.execute(f"CREATE TEMP TABLE more AS SELECT {picked} FROM {table}, nth")
            db.execute(f"INSERT INTO {table} SELECT * FROM more")
            db.execute("DROP TABLE more")
        db.commit()


def marked_report(source: Path, target: Path) -> None:
    """Copy an nsys export and put an NVTX range around each step that gpudoctor infers in it, so that they outlive the seams of a repetition."""
    from gpudoctor.timeline.ingest import IngestOptions, ingest

    shutil.copyfile(source, target)
    store = ingest([source], IngestOptions(cache=False)).store
    steps = store.query('SELECT s.start, s."end", a.tid FROM step AS s JOIN (SELECT rank, mode(tid) AS tid FROM api GROUP BY rank) AS a USING (rank)')
    if not steps:
        sys.exit(f"no steps are found in {source}; take a report that has some")
    with closing(sqlite3.connect(target)) as db:
        threads = {g & 0xFFFFFF: g for (g,) in db.execute("SELECT DISTINCT globalTid FROM CUPTI_ACTIVITY_KIND_RUNTIME")}
        db.executemany('INSERT INTO NVTX_EVENTS (start, "end", eventType, text, globalTid, domainId) VALUES (?, ?, 59, \'step\', ?, 0)',
                       [(s["start"], s["end"], threads[s["tid"]]) for s in steps])
        db.commit()


def as_ranks(source: Path, ranks: int, folder: Path) -> None:
    """Write one trace as `ranks` ranks of a job."""
    trace = json.loads(gzip.decompress(source.read_bytes()))
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        trace["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
        (folder / f"rank-{rank}.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode(), 1))


if __name__ == "__main__":
    kind, source, *count, target = sys.argv[1:]
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    if kind == "steps":
        marked_report(Path(source), Path(target))
    else:
        (longer_report if kind == "nsys" else as_ranks)(Path(source), int(count[0]), Path(target))
