"""nsys SQLite exports, through ADBC into Arrow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.nsys_raw import LONGEST_TEXT, WANTED, schema, wanted
from gpudoctor.timeline.ingest.nsys_tables import read_tables
from gpudoctor.timeline.ingest.unpack import unpacked
from gpudoctor.timeline.store import Store

MAGIC = b"SQLite format 3\0"
_BATCH_ROWS = 32768
_SAFE_METADATA = (
    "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION", "PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE",
    "PROCESS_0:COLLECT_GPU_MEMORY_USAGE", "PROCESS_0:COLLECT_CUDA_TRACE", "PROCESS_0:COLLECT_NVTX_TRACE",
)
_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def matches(head: bytes, path: Path) -> bool:
    """True for any SQLite database."""
    return head.startswith(MAGIC)


def read(path: Path, rank: int | None, store: Store) -> None:
    """Add a SQLite export (plain or `.gz`) to the store.

    A report of one process gets `rank`, or the rank its environment names, or 0; several processes are numbered
    by process id. Raises InputError if the file is no whole nsys export.
    """
    with unpacked(path) as plain:
        check_whole(plain, path)
        try:
            source = SqliteTables(plain)
            if not source.columns("StringIds"):
                raise InputError(f"{path}: a SQLite database, but not an nsys export (no table StringIds)")
            read_tables(source, path, rank, store)
        except sqlite3.Error as error:
            raise InputError(f"{path}: damaged SQLite file ({error}); export the report again") from None


def check_whole(path: Path, shown: Path) -> None:
    """Raise InputError if the file is shorter than its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(100)
    if len(head) < 100:
        raise InputError(f"{shown}: truncated SQLite file; export the report again")
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    if head[24:28] == head[92:96] and size < page * pages:
        raise InputError(f"{shown}: truncated: {size:,} of {page * pages:,} bytes are there; export the report again")


class SqliteTables:
    """Raw tables of one SQLite file, opened read-only; nothing is ever written beside it."""

    def __init__(self, path: Path) -> None:
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with self._open() as connection:
            plain = {n for n, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'") if not str(sql).upper().startswith("CREATE VIRTUAL")}
            self._columns = {t: {r[1] for r in connection.execute(f"PRAGMA table_info('{t}')")} for t in WANTED if t in plain}
            self._metadata = self._read_metadata(connection, plain)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._uri, uri=True)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def filled(self, table: str) -> bool:
        if table not in self._columns:
            return False
        with self._open() as connection:
            return connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None

    def processes(self, table: str, column: str) -> set[int]:
        if column not in self._columns[table]:
            return set()
        with self._open() as connection:
            return {v for (v,) in connection.execute(f'SELECT DISTINCT CAST("{column}" AS INTEGER) >> 24 FROM "{table}"') if v is not None}

    def columns(self, table: str) -> set[str]:
        return self._columns.get(table, set())

    def metadata(self) -> dict[str, str]:
        return self._metadata

    def reader(self, table: str) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(schema(table), self._batches(table))

    def _batches(self, table: str) -> Iterator[pa.RecordBatch]:
        from adbc_driver_sqlite import dbapi

        present, expected = self._columns[table], schema(table)
        picks = ", ".join(_pick(name, text, name in present) for name, text in wanted(table))
        with dbapi.connect(self._uri) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(f'SELECT {picks} FROM "{table}"')
            for batch in cursor.fetch_record_batch():
                yield batch if batch.schema.equals(expected) else batch.cast(expected)

    def _read_metadata(self, connection: sqlite3.Connection, tables: set[str]) -> dict[str, str]:
        out: dict[str, str] = {}
        marks = ", ".join("?" * len(_SAFE_METADATA))
        for table in ("EXPORT_META_DATA", "META_DATA_EXPORT", "META_DATA_CAPTURE"):
            if table in tables and {"name", "value"} <= _names(connection, table):
                out |= {str(n): str(v)[:200] for n, v in connection.execute(f"SELECT name, value FROM {table} WHERE name IN ({marks})", _SAFE_METADATA)}
        if "META_DATA_CAPTURE" in tables and {"name", "value"} <= _names(connection, "META_DATA_CAPTURE"):
            out |= _environment(connection)
        return out


def _environment(connection: sqlite3.Connection) -> dict[str, str]:
    """How many variables the report holds, and the rank they name; no other value is looked at."""
    where = "FROM META_DATA_CAPTURE WHERE name LIKE '%:ENVIRONMENT_VARIABLE'"
    out = {"env_vars": str(connection.execute(f"SELECT count(*) {where}").fetchone()[0])}
    for variable in _RANK_VARIABLES:
        row = connection.execute(f"SELECT substr(value, ?) {where} AND value LIKE ? LIMIT 1", (len(variable) + 2, variable + "=%")).fetchone()
        if row and str(row[0]).isdigit() and len(str(row[0])) < 7:
            return out | {"rank": str(int(row[0]))}
    return out


def _names(connection: sqlite3.Connection, table: str) -> set[str]:
    return {r[1] for r in connection.execute(f"PRAGMA table_info('{table}')")}


def _pick(name: str, text: bool, present: bool) -> str:
    column: Any = f'"{name}"' if present else "NULL"
    if text:
        return f"ifnull(substr(CAST({column} AS TEXT), 1, {LONGEST_TEXT}), '') AS \"{name}\""
    return f'CAST({column} AS INTEGER) AS "{name}"'
