"""nsys exports to a folder of Parquet files (`nsys export --type=parquetdir`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.nsys_raw import LONGEST_TEXT, ONLY, WANTED, safe_metadata, schema, wanted
from gpudoctor.timeline.ingest.nsys_stacks import BACKTRACE, LONGEST_PAYLOAD, MARK
from gpudoctor.timeline.ingest.nsys_tables import NsysTrace

_BATCH_ROWS = 65536


def matches(head: bytes, path: Path) -> bool:
    """True for a folder of Parquet files with nsys's table of strings."""
    return path.is_dir() and (path / "StringIds.parquet").is_file()


@contextmanager
def open_trace(path: Path) -> Iterator[NsysTrace]:
    """Open a folder. InputError if a file in it is damaged."""
    try:
        yield NsysTrace(path, ParquetTables(path))
    except (pa.ArrowException, OSError, duckdb.Error) as error:
        raise InputError(f"{path}: damaged Parquet file ({str(error).splitlines()[0][:200]}); export the report again") from None


class ParquetTables:
    """Raw tables of one folder."""

    def __init__(self, folder: Path) -> None:
        self._files = {t: pq.ParquetFile(folder / f"{t}.parquet") for t in WANTED if (folder / f"{t}.parquet").is_file()}
        pairs: list[tuple[str, str]] = []
        for name in ("META_DATA_EXPORT", "META_DATA_CAPTURE"):
            if (folder / f"{name}.parquet").is_file():
                rows = pq.read_table(folder / f"{name}.parquet", columns=["name", "value"]).to_pylist()
                pairs += [(str(r["name"]), str(r["value"])) for r in rows]
        self._metadata = safe_metadata(pairs)

    def filled(self, table: str) -> bool:
        return table in self._files and self._files[table].metadata.num_rows > 0

    def columns(self, table: str) -> set[str]:
        return set(self._files[table].schema_arrow.names) if table in self._files else set()

    def processes(self, table: str, column: str) -> set[int]:
        if column not in self.columns(table):
            return set()
        found: set[int] = set()
        for batch in self._files[table].iter_batches(_BATCH_ROWS, columns=[column]):
            found |= {v >> 24 for v in pc.unique(_whole(batch.column(0))).to_pylist() if v is not None}
        return found

    def backtraces(self) -> Iterator[tuple[int, int, str]]:
        marks, calls = "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
        if not {"jsonText", "eventType"} <= self.columns(marks) or "eventClass" not in self.columns(calls):
            return
        begun = {(tid, start): corr for tid, start, corr in self._chosen(calls, "eventClass", BACKTRACE, "globalTid", "start", "correlationId")}
        for tid, start, payload in self._chosen(marks, "eventType", MARK, "globalTid", "start", "jsonText") if begun else ():
            if isinstance(payload, str) and len(payload) < LONGEST_PAYLOAD and (corr := begun.get((tid, start))) is not None:
                yield tid, corr, payload

    def _chosen(self, table: str, only: str, value: int, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Those columns of the rows where `only` is `value`."""
        for batch in self._files[table].iter_batches(_BATCH_ROWS, columns=[only, *columns]):
            chosen = batch.filter(pc.equal(_whole(batch.column(only)), value))
            yield from zip(*(chosen.column(c).to_pylist() for c in columns), strict=True)

    def metadata(self) -> dict[str, str]:
        return self._metadata

    def readers(self, table: str) -> list[pa.RecordBatchReader]:
        return [pa.RecordBatchReader.from_batches(schema(table), self._batches(table))]

    def _batches(self, table: str) -> Iterator[pa.RecordBatch]:
        present = self.columns(table)
        only, values = ONLY.get(table, ("", ()))
        columns = [name for name, _ in wanted(table) if name in present] + [only] * (only in present)
        for batch in self._files[table].iter_batches(_BATCH_ROWS, columns=columns):
            if only in present:
                batch = batch.filter(pc.is_in(_whole(batch.column(only)), value_set=pa.array(values, pa.int64())))
            picked = [_pick(batch, name, text, name in present) for name, text in wanted(table)]
            yield pa.RecordBatch.from_arrays(picked, schema=schema(table))


def _pick(batch: pa.RecordBatch, name: str, text: bool, present: bool) -> pa.Array:
    if text:
        column = batch.column(name).cast(pa.string()) if present else pa.nulls(batch.num_rows, pa.string())
        return pc.utf8_slice_codeunits(pc.fill_null(column, ""), 0, LONGEST_TEXT)
    return _whole(batch.column(name)) if present else pa.nulls(batch.num_rows, pa.int64())


def _whole(column: Any) -> pa.Array:
    """The column as int64; unsigned ids keep their bits."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column.cast(pa.int64(), safe=False) if not pa.types.is_string(column.type) else pa.nulls(len(column), pa.int64())
