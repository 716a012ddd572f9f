"""A run folder: which files in it are read, and as what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gpudoctor.errors import InputError
from gpudoctor.rundir import RunDir
from gpudoctor.tables import TABLES
from gpudoctor.timeline.store import Store, arrow_schema

_RANK = re.compile(r"(?:^|[._])rank[._-]?(\d{1,6})(?=[._]|$)")


def is_run(path: Path) -> bool:
    """True for a folder that `gpudoctor run` made, finished or not."""
    return RunDir.is_run(path)


def rank_in_name(path: Path) -> int | None:
    """The rank in a name that gpudoctor chose: `probe.rank3.jsonl`, `rank3.txt`, `nccl.rank3.log`."""
    found = _RANK.search(path.name)
    return int(found[1]) if found else None


def files_of(root: Path) -> Iterator[Path]:
    """The files to read: records first, then captures, then logs. An export beside its report stands for it."""
    run = RunDir.open(root)
    captures = sorted(p for p in (run.capture.iterdir() if run.capture.is_dir() else ()) if not p.name.startswith(".") and ".before" not in p.name)
    yield from (p for p in captures if p.suffix == ".jsonl")
    exported = {p.name.removesuffix(".gz").removesuffix(".sqlite") for p in captures if p.name.endswith((".sqlite", ".sqlite.gz"))}
    for path in captures:
        if path.suffix != ".jsonl" and not (path.suffix in (".nsys-rep", ".qdrep") and path.stem in exported):
            yield path
    if run.logs.is_dir():
        yield from sorted(run.logs.glob("*.txt"))


def read_tables(root: Path, store: Store) -> list[str]:
    """Add `tables/*.parquet`, for a folder whose captures are gone; return the tables read. InputError if one is damaged."""
    found = []
    for name in TABLES:
        path = RunDir(root).tables / f"{name}.parquet"
        if not path.is_file():
            continue
        try:
            data = pq.read_table(path)
            known = arrow_schema(TABLES[name])
            names = [c for c in data.column_names if c in known.names]
            store.add(name, data.select(names).cast(pa.schema([known.field(c) for c in names])))
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: damaged table ({str(error).splitlines()[0][:200]})") from None
        found.append(name)
    return found
