"""A worker process: reads Kineto traces and leaves their columns in files. It loads no database.

Each line on standard input is a `Request`, each line on standard output an `Answer`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pyarrow as pa

from gpudoctor.errors import GpudoctorError
from gpudoctor.timeline.ingest.kineto_columns import Extract, extract
from gpudoctor.timeline.ingest.kineto_events import About
from gpudoctor.timeline.ingest.workers import Answer, Request

_ABOUT = "about.json"


class _Said(msgspec.Struct):
    about: About
    truncated: bool


def save(trace: Extract, folder: Path) -> None:
    """Write the columns as Arrow files into a new `folder`."""
    folder.mkdir()
    for kind, table in trace.tables.items():
        with pa.ipc.new_file(folder / f"{kind}.arrow", table.schema) as file:
            file.write_table(table)
    (folder / _ABOUT).write_bytes(msgspec.json.encode(_Said(trace.about, trace.truncated)))


def load(path: Path, folder: Path) -> Extract:
    """The columns that a worker saved, mapped into memory."""
    said = msgspec.json.decode((folder / _ABOUT).read_bytes(), type=_Said)
    tables = {f.stem: pa.ipc.open_file(pa.memory_map(str(f))).read_all() for f in folder.glob("*.arrow")}
    return Extract(path, said.about, said.truncated, tables)


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin.buffer:
        request = msgspec.json.decode(line, type=Request)
        answer = Answer()
        try:
            save(extract(Path(request.path)), Path(request.folder))
        except GpudoctorError as error:
            answer = Answer(str(error))
        except MemoryError:
            answer = Answer(f"{request.path}: not enough memory to read it")
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
