"""Rows read from SQLite's pages are the rows that SQLite itself tells of, whatever the table looks like."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import adbc_driver_manager
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.timeline.ingest import nsys_sqlite
from gpudoctor.timeline.ingest.nsys_sqlite import SqliteTables
from gpudoctor.timeline.ingest.sqlite_btree import PageFile, Unusual
from gpudoctor.timeline.ingest.sqlite_records import columns_of

TABLE = "TARGET_INFO_GPU"
"""A table of both kinds of columns."""
WANTED = ("name", "cuDevice", "busLocation", "totalMemory", "smCount", "uuid", "computeMajor", "computeMinor")
TEXTS = {"name", "busLocation", "uuid"}
LAYOUT = "smCount INTEGER, name TEXT, other REAL, cuDevice INTEGER NOT NULL, note TEXT, uuid TEXT, totalMemory INTEGER, busLocation TEXT, last BLOB"
DAMAGED = (sqlite3.Error, adbc_driver_manager.Error)
"""What `open_trace` tells as a damaged file."""

whole = st.one_of(st.none(), st.integers(-2, 3), *(st.integers(-(1 << b), (1 << b) - 1) for b in (7, 15, 23, 31, 47, 63)))
short = st.one_of(st.none(), st.text(max_size=70))
plain = st.tuples(whole, short, st.floats(allow_nan=False), whole.filter(lambda v: v is not None), short, short, whole, short, st.binary(max_size=9))
strange = st.one_of(whole, short, st.floats(allow_nan=False), st.binary(max_size=20), st.text(min_size=300, max_size=900))
any_row = st.tuples(*[strange] * 3, strange.filter(lambda v: v is not None), *[strange] * 5)


def made(path: Path, rows: list[tuple[Any, ...]], layout: str = LAYOUT, page_size: int = 512, then: str = "", first: str = "") -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"PRAGMA page_size = {page_size}; {first}; CREATE TABLE {TABLE} ({layout}); CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        for start in range(0, len(rows), 100):
            connection.executemany(f"INSERT INTO {TABLE} VALUES ({', '.join('?' * len(rows[0]))})", rows[start : start + 100])
            connection.execute("INSERT INTO StringIds (value) VALUES (?)", ["x" * 700])
        connection.commit()
        connection.executescript(then)
    return path


def told(path: Path) -> list[tuple[Any, ...]]:
    """The same by SQLite, in the order of the rows; a text that is not UTF-8 is as the file has it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        present = {r[1].decode() for r in connection.execute(f"PRAGMA table_info({TABLE})")}
        picks = [f"ifnull(CAST({c if c in present else 'NULL'} AS TEXT), '')" if c in TEXTS else f"CAST({c if c in present else 'NULL'} AS INTEGER)" for c in WANTED]
        return connection.execute(f"SELECT {', '.join(picks)} FROM {TABLE}").fetchall()


def read(path: Path) -> list[tuple[Any, ...]]:
    table = pa.concat_tables(reader.read_all() for reader in SqliteTables(path).readers(TABLE))
    assert table.column_names == list(WANTED)
    return list(zip(*(table[c].cast(pa.binary() if c in TEXTS else pa.int64()).to_pylist() for c in WANTED), strict=True))


@pytest.fixture
def pages_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """SQLite may hand out no row."""
    def refuse(*_: object) -> Iterator[Any]:
        raise AssertionError("read through SQLite")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteTables, "_select", refuse)
        yield


def rows_of(count: int, **values: Any) -> list[tuple[Any, ...]]:
    names = [c.split()[0] for c in LAYOUT.split(", ")]
    default = {"smCount": 7, "name": "a name", "other": 0.5, "cuDevice": 1, "note": None, "uuid": "é", "totalMemory": 1 << 40, "busLocation": "", "last": b"z"}
    return [tuple((default | values)[n] if n != "smCount" else i for n in names) for i in range(count)]


@pytest.mark.usefixtures("pages_only")
@pytest.mark.parametrize("page_size", [512, 4096, 65536])
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(plain, min_size=1, max_size=12), times=st.integers(1, 60), share=st.integers(1, 4))
def test_ordinary_rows_come_from_the_pages_alone(page_size: int, rows: list[tuple[Any, ...]], times: int, share: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(nsys_sqlite, "_WORTH_PARTS", 0)
        patched.setattr(nsys_sqlite, "_BYTES_AT_ONCE", 3 * page_size)
        patched.setattr(nsys_sqlite, "cpus", lambda: share)
        path = made(Path(folder, "t.sqlite"), rows * times, page_size=page_size)
        assert read(path) == told(path)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(any_row, min_size=1, max_size=12), times=st.integers(1, 20), gone=st.integers(2, 9))
def test_strange_rows_are_as_sqlite_tells_them(rows: list[tuple[Any, ...]], times: int, gone: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(nsys_sqlite, "_BYTES_AT_ONCE", 2 * 512)
        path = made(Path(folder, "t.sqlite"), rows * times, then=f"DELETE FROM {TABLE} WHERE rowid % {gone} = 1; UPDATE {TABLE} SET name = 'shorter' WHERE rowid % 7 = 2")
        assert read(path) == told(path)


@pytest.mark.parametrize(
    ("layout", "first", "then"),
    [
        (LAYOUT, "PRAGMA encoding = 'UTF-16le'", ""),
        (LAYOUT, "PRAGMA auto_vacuum = 1", f"DELETE FROM {TABLE} WHERE rowid < 300"),
        (LAYOUT, "", f"ALTER TABLE {TABLE} ADD COLUMN computeMajor INTEGER DEFAULT 9; INSERT INTO {TABLE} (cuDevice, computeMajor) VALUES (3, 8)"),
        (LAYOUT, "", f"UPDATE {TABLE} SET rowid = -rowid * 1000000007 WHERE rowid % 2"),
        (LAYOUT, "", f"UPDATE {TABLE} SET name = CAST(x'ff41' AS TEXT) WHERE rowid = 77"),
        (LAYOUT, "", f"UPDATE {TABLE} SET uuid = 'a' || char(0) || 'b' WHERE rowid = 77"),
        (LAYOUT, "", f"DELETE FROM {TABLE}"),
        (LAYOUT.replace("smCount INTEGER", "smCount INTEGER PRIMARY KEY"), "", ""),
        (LAYOUT.replace("smCount INTEGER", "smCount INTEGER") + ", PRIMARY KEY (smCount)) WITHOUT ROWID; CREATE TABLE other (x", "", ""),
        ("rowid INTEGER, " + LAYOUT.partition(", ")[2], "", ""),
        ("made INTEGER AS (cuDevice + 1) STORED, " + LAYOUT, "", ""),
        ("made INTEGER AS (cuDevice + 1), " + LAYOUT, "", ""),
        (", ".join(f"unknown{i}" for i in range(9)), "", ""),
        (", ".join(f"c{i} INTEGER" for i in range(140)) + ", " + LAYOUT, "", f"INSERT INTO {TABLE} (smCount, cuDevice, name) VALUES (5, 6, 'late')"),
    ],
    ids=["utf-16", "auto-vacuum", "column-added", "negative-rowids", "not-utf-8", "nul", "empty", "key", "without-rowid", "column-rowid", "stored", "virtual", "none-wanted", "many-columns"],
)
def test_strange_tables_are_as_sqlite_tells_them(tmp_path: Path, layout: str, first: str, then: str) -> None:
    rows = [] if layout.startswith(("made", "c0")) else rows_of(500)
    fill = "" if rows else f"WITH n AS (SELECT value AS i FROM generate_series(1, 500)) SELECT 1; INSERT INTO {TABLE} (smCount, name, cuDevice) VALUES (4, 'n', 2), (5, 'm', 3);"
    path = made(tmp_path / "t.sqlite", rows, layout, first=first, then=fill.partition(";")[2] + then)
    assert sorted(map(repr, read(path))) == sorted(map(repr, told(path)))


def test_a_long_text_costs_only_its_own_pages_the_way_through_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = rows_of(3000)
    rows[1500] = rows_of(1, name="long" * 1100)[0]
    path, asked = made(tmp_path / "t.sqlite", rows, page_size=4096), list[str]()
    select = SqliteTables._select

    def noted(self: SqliteTables, table: str, names: list[tuple[str, bool]], condition: str) -> Iterator[pa.RecordBatch]:
        asked.append(condition)
        return select(self, table, names, condition)

    monkeypatch.setattr(SqliteTables, "_select", noted)
    monkeypatch.setattr(nsys_sqlite, "_BYTES_AT_ONCE", 4 * 4096)
    assert read(path) == told(path)
    assert len(asked) == 1
    assert "rowid >" in asked[0]
    assert "rowid <=" in asked[0]


@pytest.mark.parametrize("damage", range(60))
def test_damaged_pages_are_left_to_sqlite(tmp_path: Path, damage: int) -> None:
    """Whatever stands in a page: the rows that SQLite tells, or Unusual; never an error of ours, never rows of another table."""
    path = made(tmp_path / "t.sqlite", rows_of(400), page_size=512)
    raw = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [TABLE]).fetchone()[0]
    with PageFile(path) as file:
        pages = [root, *file.leaves(root).pages.tolist()[:8]]
    at = (pages[damage % len(pages)] - 1) * 512
    for i in range(3):
        raw[at + (damage * 37 + i * 101) % (12 if damage % 3 else 512)] = (damage * 29 + i * 83) % 256
    path.write_bytes(raw)
    try:
        expected: Any = told(path)
    except sqlite3.DatabaseError:
        expected = None
    try:
        found: Any = read(path)
    except DAMAGED:
        found = None
    assert found == expected or expected is None


@pytest.mark.parametrize("first", [True, False])
def test_a_tree_that_turns_back_on_itself_is_not_followed(tmp_path: Path, first: bool) -> None:
    path = made(tmp_path / "t.sqlite", rows_of(3000), page_size=512)
    with closing(sqlite3.connect(path)) as connection:
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [TABLE]).fetchone()[0]
    raw, page = bytearray(path.read_bytes()), (root - 1) * 512
    at = page + (int.from_bytes(raw[page + 12 : page + 14], "big") if first else 8)
    raw[at : at + 4] = root.to_bytes(4, "big")
    path.write_bytes(raw)
    with pytest.raises(DAMAGED, match="malformed"):
        read(path)


def test_types_beyond_the_header_are_not_believed(tmp_path: Path) -> None:
    """Two thousand columns, and a header that says it has room for 126."""
    layout = ", ".join(f"c{i} INTEGER" for i in range(1900)) + ", " + LAYOUT
    path = made(tmp_path / "t.sqlite", [], layout, page_size=16384, then=f"INSERT INTO {TABLE} (smCount, cuDevice) VALUES (5, 6)")
    raw = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as connection:
        page = (connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [TABLE]).fetchone()[0] - 1) * 16384
    cell = page + int.from_bytes(raw[page + 8 : page + 10], "big")
    record = cell + 3  # behind two bytes of size and one of row number
    raw[record : page + 16384] = bytes([127]) + bytes(page + 16383 - record)
    path.write_bytes(raw)
    with PageFile(path) as file, pytest.raises(Unusual):
        columns_of(file, file.leaves(page // 16384 + 1).pages, 1909, [(1900, False)])
