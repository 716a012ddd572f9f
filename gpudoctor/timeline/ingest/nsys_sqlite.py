"""nsys SQLite exports, through ADBC into Arrow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import adbc_driver_manager
import duckdb
import pyarrow as pa
from adbc_driver_sqlite import dbapi

from gpudoctor.cpus import cpus
from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.nsys_raw import LONGEST_TEXT, ONLY, WANTED, safe_metadata, schema, wanted
from gpudoctor.timeline.ingest.nsys_stacks import BACKTRACE, LONGEST_PAYLOAD, MARK, SCHEMA
from gpudoctor.timeline.ingest.nsys_tables import NsysTrace
from gpudoctor.timeline.ingest.unpack import SQLITE, unpacked

_BATCH_ROWS = 32768
_SMALL_ENOUGH = 512 << 20
_WORTH_PARTS = 400_000


def matches(head: bytes, path: Path) -> bool:
    """True for any SQLite database."""
    return head.startswith(SQLITE)


@contextmanager
def open_trace(path: Path) -> Iterator[NsysTrace]:
    """Open a SQLite export, plain or `.gz`. InputError if the file is no whole nsys export."""
    with unpacked(path) as plain:
        check_whole(plain, path)
        try:
            source = SqliteTables(plain)
            if not source.columns("StringIds"):
                raise InputError(f"{path}: a SQLite database, but not an nsys export (no table StringIds)")
            yield NsysTrace(path, source)
        except (sqlite3.Error, adbc_driver_manager.Error) as error:
            raise InputError(f"{path}: damaged SQLite file ({error}); export the report again") from None
        except duckdb.Error as error:
            raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from None


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
        self._limit = path.stat().st_size > _SMALL_ENOUGH
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with closing(self._open()) as connection:
            made = {n: str(sql).upper() for n, sql in connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")}
            plain = {n for n, sql in made.items() if not sql.startswith("CREATE VIRTUAL")}
            self._columns = {t: {r[1] for r in connection.execute(f"PRAGMA table_info('{t}')")} for t in WANTED if t in plain}
            self._numbered = {t for t, columns in self._columns.items() if "ROWID" not in made[t] and "rowid" not in columns}
            self._metadata = self._read_metadata(connection, plain)
            self._backtraced = "NVTX_PAYLOAD_SCHEMAS" in plain and connection.execute("SELECT 1 FROM NVTX_PAYLOAD_SCHEMAS WHERE name = ?", [SCHEMA]).fetchone() is not None

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._uri, uri=True)
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")
        return connection

    def filled(self, table: str) -> bool:
        if table not in self._columns:
            return False
        with closing(self._open()) as connection:
            return connection.execute(f'SELECT 1 FROM "{table}" LIMIT 1').fetchone() is not None

    def processes(self, table: str, column: str) -> set[int]:
        if column not in self._columns[table]:
            return set()
        with closing(self._open()) as connection:
            return {v for (v,) in connection.execute(f'SELECT DISTINCT CAST("{column}" AS INTEGER) >> 24 FROM "{table}"') if v is not None}

    def columns(self, table: str) -> set[str]:
        return self._columns.get(table, set())

    def backtraces(self) -> Iterator[tuple[int, int, str]]:
        marks, calls = "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"
        if not self._backtraced or not {"jsonText", "eventType", "start", "globalTid"} <= self.columns(marks) or "eventClass" not in self.columns(calls):
            return
        with closing(self._open()) as connection:
            yield from connection.execute(
                f"SELECT c.globalTid, c.correlationId, m.jsonText FROM {marks} m JOIN {calls} c ON c.globalTid = m.globalTid AND c.start = m.start "
                f"WHERE m.eventType = {MARK} AND c.eventClass = {BACKTRACE} AND typeof(m.jsonText) = 'text' AND typeof(c.globalTid) = 'integer' "
                f"AND typeof(c.correlationId) = 'integer' AND length(m.jsonText) < {LONGEST_PAYLOAD}")

    def metadata(self) -> dict[str, str]:
        return self._metadata

    def readers(self, table: str) -> list[pa.RecordBatchReader]:
        return [pa.RecordBatchReader.from_batches(schema(table), self._batches(table, part)) for part in self._parts(table)]

    def _parts(self, table: str) -> list[str]:
        """Conditions that share the rows of a large table among the CPUs, by SQLite's row numbers."""
        if table in self._numbered:
            with closing(self._open()) as connection:
                first, last = connection.execute(f'SELECT min(rowid), max(rowid) FROM "{table}"').fetchone()
            if first is not None and last - first >= _WORTH_PARTS:
                bounds = [first + (last - first) * i // cpus() for i in range(1, cpus())]
                return [" AND ".join(filter(None, (low and f"rowid >= {low}", high and f"rowid < {high}"))) for low, high in pairwise(["", *map(str, bounds), ""])]
        return [""]

    def _batches(self, table: str, part: str) -> Iterator[pa.RecordBatch]:
        present, expected = self._columns[table], schema(table)
        picks = ", ".join(_pick(name, text, name in present, self._limit) for name, text in wanted(table))
        with dbapi.connect(self._uri) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(f'SELECT {picks} FROM "{table}"{_where(table, present, part)}')
            for batch in cursor.fetch_record_batch():
                yield batch if batch.schema.equals(expected) else batch.cast(expected)

    def _read_metadata(self, connection: sqlite3.Connection, tables: set[str]) -> dict[str, str]:
        pairs: list[tuple[str, str]] = []
        for table in ("EXPORT_META_DATA", "META_DATA_EXPORT", "META_DATA_CAPTURE"):
            if table in tables and {"name", "value"} <= {r[1] for r in connection.execute(f"PRAGMA table_info('{table}')")}:
                pairs += [(str(n), str(v)) for n, v in connection.execute(f"SELECT name, substr(value, 1, 400) FROM {table} LIMIT 10000")]
        return safe_metadata(pairs)


def _where(table: str, present: set[str], part: str) -> str:
    column, values = ONLY.get(table, ("", ()))
    only = f"{column} IN ({', '.join(map(str, values))})" if column in present else ""
    wanted_rows = " AND ".join(filter(None, (only, part)))
    return f" WHERE {wanted_rows}" if wanted_rows else ""


def _pick(name: str, text: bool, present: bool, limit: bool) -> str:
    column = f'"{name}"' if present else "NULL"
    if text:
        column = f"CAST({column} AS TEXT)"
        return f"ifnull({f'substr({column}, 1, {LONGEST_TEXT})' if limit else column}, '') AS \"{name}\""
    return f'CAST({column} AS INTEGER) AS "{name}"'
