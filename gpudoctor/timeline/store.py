"""The one database of a report: canonical and derived tables in DuckDB."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from threading import RLock
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gpudoctor.errors import InputError, RuleError, UsageError
from gpudoctor.tables import TABLES, Column, Table
from gpudoctor.tables.derived import DERIVED

pa.set_memory_pool(pa.system_memory_pool())  # gives large columns back as soon as they are in the database; Arrow's own pools keep them
_ARROW = {"int": pa.int64(), "float": pa.float64(), "text": pa.string(), "bool": pa.bool_()}
_MOST_WAITING = 64 << 20  # bytes
ROW_GROUP = 122_880
_NO_CHECKPOINT = "1TB"
"""Written once, when the store is closed: a checkpoint while tables fill compresses them again and again."""
_SQL = {"int": "BIGINT", "float": "DOUBLE", "text": "VARCHAR", "bool": "BOOLEAN"}


def arrow_schema(table: Table) -> pa.Schema:
    """The table's columns as Arrow types: int64, float64, string, bool."""
    return pa.schema([(c.name, _ARROW[c.type]) for c in table.columns])


def in_row_groups(rows: pa.Table) -> pa.Table:
    """The rows in batches as large as the database's row groups, which it then writes as they come, and never again."""
    return pa.Table.from_batches(rows.combine_chunks().to_batches(ROW_GROUP), rows.schema)


class Store:
    """Canonical tables of one subject; every table exists, empty until something is added.

    `captured` names the tables that the source could fill: a captured table may be empty and still answer,
    a table that was not captured makes the rules that need it abstain. The database can reach no file, and
    `query` runs one SELECT in a read-only transaction, so that a rule's SQL is data.
    `memory_limit` is DuckDB's, such as "4GB"; what does not fit spills into a temporary folder.
    Added tables wait in memory, some 64 MiB at most, until somebody looks: DuckDB takes many rows at once five times as fast.
    """

    def __init__(self, memory_limit: str | None = None, threads: int | None = None, file: Path | None = None) -> None:
        """An empty store in memory, or in a new `file`, which keeps the memory of large captures low."""
        self._begin(memory_limit, threads, file, read_only=False)
        self._database.execute("BEGIN; " + "; ".join(map(_create, TABLES.values())) + "; COMMIT")

    @classmethod
    def open(cls, file: Path, memory_limit: str | None = None) -> Store:
        """Open a finished store; nothing but temporary tables can be added. InputError if the file is damaged."""
        store = cls.__new__(cls)
        try:
            store._begin(memory_limit, None, file, read_only=True)
        except duckdb.ConnectionException:
            raise
        except duckdb.Error as error:
            raise InputError(f"{file}: not a store that this version reads ({_first_line(error)})") from None
        return store

    def _begin(self, memory_limit: str | None, threads: int | None, file: Path | None, read_only: bool) -> None:
        self._database = _connect(memory_limit, threads, file, read_only)
        self.captured: set[str] = set()
        self._name_ids: dict[str | None, int] = {}
        self._lock = RLock()
        self._waiting: dict[str, list[pa.Table]] = {}
        self._waiting_bytes, self._most_waiting = 0, 0 if read_only else _MOST_WAITING

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """The database with everything that was added."""
        with self._lock:
            self._write(*self._waiting)
        return self._database

    def intern(self, texts: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return the name ids of `texts` (int64, null for null); new texts go into the table `name`."""
        array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        with self._lock:
            known, fresh = self._name_ids, []
            for text in encoded.dictionary.to_pylist():
                if text not in known:
                    known[text] = len(known)
                    fresh.append(text)
            if fresh:
                first = len(known) - len(fresh)
                self._keep("name", pa.table({"name_id": pa.array(range(first, first + len(fresh)), pa.int64()), "text": pa.array(fresh, pa.string())}))
            ids = pa.array([known[t] for t in encoded.dictionary.to_pylist()], pa.int64())
        return ids.take(encoded.indices)

    def add(self, name: str, data: pa.Table, captured: bool = True) -> None:
        """Append rows to a canonical or derived table; columns that `data` lacks are null. Unknown columns are refused by KeyError.

        With `captured` False the table counts as captured only if something else makes it.
        """
        self._keep(name, data)
        if captured and name in TABLES:
            self.captured.add(name)

    def _keep(self, name: str, data: pa.Table) -> None:
        table = TABLES[name] if name in TABLES else DERIVED[name]
        fields = [pa.field(table.column(c.name).name, _ARROW[table.column(c.name).type]) for c in data.schema]
        data = data.cast(pa.schema([g if pa.types.is_dictionary(g.type) else f for f, g in zip(fields, data.schema, strict=True)]))
        with self._lock:
            self._waiting.setdefault(name, []).append(data)
            self._waiting_bytes += data.nbytes
            if self._waiting_bytes > self._most_waiting:
                self._write(*self._waiting)

    def _write(self, *tables: str) -> None:
        with self._lock:
            for name in tables:
                alike: dict[tuple[str, ...], list[pa.Table]] = {}
                for table in self._waiting.pop(name, ()):
                    self._waiting_bytes -= table.nbytes
                    alike.setdefault(tuple(f.name for f in table.schema if pa.types.is_dictionary(f.type)), []).append(table)
                for group in alike.values():
                    self._insert(name, in_row_groups(pa.concat_tables(group, promote_options="default").unify_dictionaries()))

    def _insert(self, name: str, data: pa.Table) -> None:
        names = ", ".join(f'"{c}"' for c in data.schema.names)
        cursor = self._database.cursor()
        cursor.register("_incoming", data)
        try:
            cursor.execute(f'INSERT INTO "{name}" ({names}) SELECT {names} FROM _incoming')
        except duckdb.OutOfMemoryException as error:
            raise _no_memory(error) from None
        finally:
            cursor.close()

    def add_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append dictionaries; for small tables and for tests."""
        rows = list(rows)
        table = TABLES[name]
        present = [c for c in table.columns if any(c.name in r for r in rows)]
        unknown = {k for r in rows for k in r} - {c.name for c in table.columns}
        if unknown:
            raise RuleError(f"table {name} has no column {', '.join(sorted(unknown))}")
        if not present:
            self.captured.add(name)
            return
        schema = pa.schema([(c.name, _ARROW[c.type]) for c in present])
        self.add(name, pa.Table.from_pylist([{c.name: r.get(c.name) for c in present} for r in rows], schema=schema))

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one SELECT and return its rows; `$name` in the SQL takes `params[name]`.

        Raises RuleError if the text is not a single SELECT, or if it tries to write.
        """
        _require_select(sql)
        cursor = self.connection.cursor()
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        try:
            cursor.execute(sql, dict(params) if params else None)
            names = [d[0] for d in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        except duckdb.TransactionException as error:
            raise RuleError(f"a rule's SQL may only read: {_first_line(error)}") from None
        except duckdb.OutOfMemoryException as error:
            raise _no_memory(error) from None
        except duckdb.Error as error:
            raise RuleError(f"a rule's SQL failed: {_first_line(error)}") from None
        finally:
            cursor.close()

    def count(self, name: str) -> int:
        """Rows of a canonical or derived table."""
        self._write(name)
        return int(self.compute(f'SELECT count(*) AS n FROM "{name}"')["n"][0].as_py())

    def table(self, name: str) -> pa.Table:
        """All rows of a canonical table as Arrow."""
        self._write(name)
        return self.compute(f'SELECT * FROM "{TABLES[name].name}"')

    def compute(self, sql: str, **tables: pa.Table) -> pa.Table:
        """The answer to a SELECT over `tables`, by their names; what waits to be written is not in the store's own yet."""
        cursor = self._database.cursor()
        for name, data in tables.items():
            cursor.register(name, data)
        answer = cursor.sql(sql).to_arrow_table()
        cursor.close()
        return answer

    def write_parquet(self, folder: Path) -> None:
        """Write every captured table as `folder/NAME.parquet`."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in sorted(self.captured & set(TABLES)):
            pq.write_table(self.table(name), folder / f"{name}.parquet", compression="zstd")

    def close(self) -> None:
        self._database.close()


@cache
def _spill_folder() -> str:
    """Where all stores of this process spill to; DuckDB makes it when it is needed."""
    folder = Path(tempfile.gettempdir(), f"gpudoctor-{uuid4().hex}")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(folder)


def _connect(memory_limit: str | None, threads: int | None, file: Path | None, read_only: bool) -> duckdb.DuckDBPyConnection:
    config: dict[str, Any] = {
        "autoinstall_known_extensions": False, "autoload_known_extensions": False, "enable_external_access": False,
        "python_enable_replacements": False, "preserve_insertion_order": False, "temp_directory": _spill_folder(), "checkpoint_threshold": _NO_CHECKPOINT, "lock_configuration": True,
    }
    if memory_limit:
        config["memory_limit"] = memory_limit
    if threads:
        config["threads"] = threads
    try:
        return duckdb.connect(str(file or ":memory:"), read_only=read_only, config=config)
    except (duckdb.ParserException, duckdb.InvalidInputException) as error:
        if memory_limit is None or "emory" not in str(error):
            raise
        raise UsageError(f"--memory-limit {memory_limit}: {_first_line(error)}; write e.g. 4GB") from None


def _require_select(sql: str) -> None:
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise RuleError(f"a rule's SQL does not parse: {_first_line(error)}") from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise RuleError("a rule's SQL must be one SELECT")


def _no_memory(error: Exception) -> InputError:
    return InputError(f"not enough memory: {_first_line(error)}; raise --memory-limit")


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _create(table: Table) -> str:
    return f'CREATE TABLE "{table.name}" ({", ".join(_column(c) for c in table.columns)})'


def _column(column: Column) -> str:
    return f'"{column.name}" {_SQL[column.type]}'
