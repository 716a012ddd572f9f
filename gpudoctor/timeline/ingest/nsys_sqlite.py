"""nsys SQLite exports: their pages, or what SQLite says of them through ADBC, as Arrow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import adbc_driver_manager
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_sqlite import dbapi

from gpudoctor.cpus import cpus
from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest.nsys_raw import (
    LONGEST_TEXT,
    ONLY,
    WANTED,
    safe_metadata,
    schema,
    schema_of,
    wanted,
)
from gpudoctor.timeline.ingest.nsys_stacks import BACKTRACE, LONGEST_PAYLOAD, MARK, SCHEMA
from gpudoctor.timeline.ingest.nsys_tables import NsysTrace
from gpudoctor.timeline.ingest.sqlite_btree import Leaves, PageFile, Unusual
from gpudoctor.timeline.ingest.sqlite_records import columns_of
from gpudoctor.timeline.ingest.unpack import SQLITE, unpacked

_BATCH_ROWS = 32768
_SMALL_ENOUGH = 512 << 20
_WORTH_PARTS = 4 << 20
_BYTES_AT_ONCE = 2 << 20


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
    """Raw tables of one SQLite file, opened read-only; nothing is ever written beside it.

    Rows come from the file's pages at once, and through SQLite where something about them is unusual.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._limit = path, path.stat().st_size > _SMALL_ENOUGH
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with closing(self._open()) as connection:
            made = {n: (str(sql).upper(), root) for n, sql, root in connection.execute("SELECT name, sql, rootpage FROM sqlite_master WHERE type = 'table'")}
            plain = {n for n, (sql, _) in made.items() if not sql.startswith("CREATE VIRTUAL")}
            layouts = {t: connection.execute(f"PRAGMA table_xinfo('{t}')").fetchall() for t in WANTED if t in plain}
            self._metadata = self._read_metadata(connection, plain)
            self._backtraced = "NVTX_PAYLOAD_SCHEMAS" in plain and connection.execute("SELECT 1 FROM NVTX_PAYLOAD_SCHEMAS WHERE name = ?", [SCHEMA]).fetchone() is not None
        self._columns = {t: [str(c[1]) for c in layout] for t, layout in layouts.items()}
        self._roots = {t: made[t][1] for t, layout in layouts.items() if "ROWID" not in made[t][0] and not any(key or hidden for *_, key, hidden in layout)}

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
        if column not in self.columns(table):
            return set()
        found = (pc.unique(batch[0]).to_pylist() for part in self._parts(table, 1) for batch in self._scan(table, [(column, False)], part))
        return {v >> 24 for values in found for v in values if v is not None}

    def columns(self, table: str) -> set[str]:
        return set(self._columns.get(table, ()))

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
        return [pa.RecordBatchReader.from_batches(schema(table), self._batches(table, part)) for part in self._parts(table, cpus())]

    def _parts(self, table: str, most: int) -> Sequence[Leaves | None]:
        """The table's pages in at most so many shares, to be read side by side; None stands for all rows, which only SQLite can find."""
        try:
            with PageFile(self._path) as file:
                leaves = file.leaves(self._roots[table])
                return leaves.shares(most if len(leaves.pages) * file.page_size >= _WORTH_PARTS else 1)
        except (KeyError, Unusual):
            return [None]

    def _batches(self, table: str, part: Leaves | None) -> Iterator[pa.RecordBatch]:
        column, values = ONLY.get(table, ("", ()))
        filtered = column in self._columns[table]
        for batch in self._scan(table, wanted(table) + [(column, False)] * filtered, part):
            rows = batch.select(schema(table).names)
            yield rows.filter(pc.is_in(batch[column], value_set=pa.array(values, pa.int64()))) if filtered else rows

    def _scan(self, table: str, names: list[tuple[str, bool]], part: Leaves | None) -> Iterator[pa.RecordBatch]:
        """Columns, each with whether it is text, of the rows on those pages."""
        places = self._columns[table]
        found = [(places.index(name), text) for name, text in names if name in places]
        if part is None or not found:
            yield from self._select(table, names, part.condition() if part else "")
            return
        with PageFile(self._path) as file:
            for few in part.pieces(_BYTES_AT_ONCE // file.page_size):
                try:
                    read = dict(zip([place for place, _ in found], columns_of(file, few.pages, len(places), found), strict=True))
                except Unusual:
                    yield from self._select(table, names, few.condition())
                    continue
                rows = len(read[found[0][0]])
                yield pa.RecordBatch.from_arrays([read[places.index(n)] if n in places else _absent(rows, text) for n, text in names], schema=schema_of(names))

    def _select(self, table: str, names: list[tuple[str, bool]], condition: str) -> Iterator[pa.RecordBatch]:
        """The same through SQLite, which converts what has another type."""
        picks = ", ".join(_pick(name, text, name in self._columns[table], self._limit) for name, text in names)
        with dbapi.connect(self._uri) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(f'SELECT {picks} FROM "{table}"{condition}')
            try:
                for batch in cursor.fetch_record_batch():
                    yield batch if batch.schema.equals(schema_of(names)) else batch.cast(schema_of(names))
            except OSError as error:  # what Arrow makes of an error after the first rows
                raise sqlite3.DatabaseError(str(error)) from None

    def _read_metadata(self, connection: sqlite3.Connection, tables: set[str]) -> dict[str, str]:
        pairs: list[tuple[str, str]] = []
        for table in ("EXPORT_META_DATA", "META_DATA_EXPORT", "META_DATA_CAPTURE"):
            if table in tables and {"name", "value"} <= {r[1] for r in connection.execute(f"PRAGMA table_info('{table}')")}:
                pairs += [(str(n), str(v)) for n, v in connection.execute(f"SELECT name, substr(value, 1, 400) FROM {table} LIMIT 10000")]
        return safe_metadata(pairs)


def _absent(rows: int, text: bool) -> pa.Array:
    return pa.repeat("", rows) if text else pa.nulls(rows, pa.int64())


def _pick(name: str, text: bool, present: bool, limit: bool) -> str:
    column = f'"{name}"' if present else "NULL"
    if text:
        column = f"CAST({column} AS TEXT)"
        return f"ifnull({f'substr({column}, 1, {LONGEST_TEXT})' if limit else column}, '') AS \"{name}\""
    return f'CAST({column} AS INTEGER) AS "{name}"'
