"""The one database of a report: canonical and derived tables in DuckDB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gpudoctor.errors import RuleError
from gpudoctor.tables import TABLES, Column, Table

_ARROW = {"int": pa.int64(), "float": pa.float64(), "text": pa.string(), "bool": pa.bool_()}


def arrow_schema(table: Table) -> pa.Schema:
    """The table's columns as Arrow types: int64, float64, string, bool."""
    return pa.schema([(c.name, _ARROW[c.type]) for c in table.columns])


class Store:
    """Canonical tables of one subject; every table exists, empty until something is added.

    `captured` names the tables that the source could fill: a captured table may be empty and still answer,
    a table that was not captured makes the rules that need it abstain.
    """

    def __init__(self, memory_limit: str | None = None, threads: int | None = None) -> None:
        config: dict[str, Any] = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        if memory_limit:
            config["memory_limit"] = memory_limit
        if threads:
            config["threads"] = threads
        self.connection = duckdb.connect(":memory:", config=config)
        self.captured: set[str] = set()
        for table in TABLES.values():
            self.connection.execute(_create(table))

    def add(self, name: str, data: pa.Table) -> None:
        """Append rows; columns that `data` lacks are null. Unknown columns are refused by KeyError."""
        table = TABLES[name]
        names = ", ".join(f'"{table.column(c).name}"' for c in data.column_names)
        self.connection.register("_incoming", data)
        self.connection.execute(f'INSERT INTO "{name}" ({names}) SELECT {names} FROM _incoming')
        self.connection.unregister("_incoming")
        self.captured.add(name)

    def add_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Append dictionaries; for small tables and for tests."""
        rows = list(rows)
        table = TABLES[name]
        present = [c for c in table.columns if any(c.name in r for r in rows)]
        unknown = {k for r in rows for k in r} - {c.name for c in table.columns}
        if unknown:
            raise RuleError(f"table {name} has no column {', '.join(sorted(unknown))}")
        schema = pa.schema([(c.name, _ARROW[c.type]) for c in present])
        self.add(name, pa.Table.from_pylist([{c.name: r.get(c.name) for c in present} for r in rows], schema=schema))

    def query(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one SELECT and return its rows; `$name` in the SQL takes `params[name]`."""
        cursor = self.connection.execute(sql, dict(params) if params else None)
        names = [d[0] for d in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def count(self, name: str) -> int:
        """Rows of a canonical or derived table."""
        row = self.connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()
        return int(row[0]) if row else 0

    def write_parquet(self, folder: Path) -> None:
        """Write every captured table as `folder/NAME.parquet`."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in sorted(self.captured & set(TABLES)):
            pq.write_table(self.connection.execute(f'SELECT * FROM "{name}"').to_arrow_table(), folder / f"{name}.parquet", compression="zstd")

    def close(self) -> None:
        self.connection.close()


def _create(table: Table) -> str:
    return f'CREATE TABLE "{table.name}" ({", ".join(_column(c) for c in table.columns)})'


def _column(column: Column) -> str:
    sql = {"int": "BIGINT", "float": "DOUBLE", "text": "VARCHAR", "bool": "BOOLEAN"}[column.type]
    return f'"{column.name}" {sql}'
