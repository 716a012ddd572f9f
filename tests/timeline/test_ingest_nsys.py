"""nsys exports → canonical tables."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest, nsys_sqlite, nsys_tables
from tests.shared import shared_dir

DATA = Path(__file__).parents[1] / "data" / "captures"
OLD, NEW = DATA / "nsys_3.7.2_wrong_order.sqlite.gz", DATA / "nsys_3.20.3_clean_overlap.sqlite.gz"
STACKS = DATA / "nsys_3.20.3_python_backtrace.sqlite.gz"
K = "CUPTI_ACTIVITY_KIND_"


def read(*paths: Path) -> Ingested:
    return ingest(list(paths), IngestOptions(cache=False, debug=True))


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A copy of a planted report after some SQL."""

    def change(*statements: str, base: Path = NEW) -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
        path.write_bytes(gzip.decompress(base.read_bytes()))
        with closing(sqlite3.connect(path)) as db:
            for statement in statements:
                db.execute(statement)
            db.commit()
        return path

    return change


@pytest.mark.parametrize("path", [OLD, NEW], ids=["3.7.2", "3.20.3"])
def test_counts_of_the_planted_program(path: Path) -> None:
    store = read(path).store
    kinds = {r["kind"]: r["n"] for r in store.query("SELECT kind, count(*) AS n FROM gpu_op GROUP BY kind")}
    assert kinds == {"kernel": 208, "comm": 42, "memcpy": 21, "memset": 5}
    assert {r["kind"]: r["n"] for r in store.query("SELECT kind, count(*) AS n FROM sync GROUP BY kind")} == {"device": 2, "stream_wait_event": 80}
    assert store.count("event_record") == 80
    assert store.query("SELECT count(*) AS n FROM event_record WHERE stream IS NULL OR start IS NULL") == [{"n": 0}]
    flags = {r["flags"]: r["n"] for r in store.query("SELECT flags, count(*) AS n FROM stream GROUP BY flags")}
    assert flags == {"nonblocking": 7, "blocking": 2, "default": 1}
    copies = store.query("SELECT copy_kind, src_mem, dst_mem, bytes, count(*) AS n FROM gpu_op WHERE kind = 'memcpy' AND bytes = 65536 GROUP BY ALL")
    assert copies == [{"copy_kind": "h2d", "src_mem": "pinned", "dst_mem": "device", "bytes": 65536, "n": 20}]
    assert {"gpu_op", "api", "sync", "event_record", "stream", "nvtx", "gpu_mem", "capture"} <= store.captured


def test_a_table_read_in_parts_is_the_same_table(changed: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = changed("PRAGMA page_size = 512", "VACUUM", f"DELETE FROM {K}RUNTIME WHERE rowid % 7 = 3", f"INSERT INTO NVTX_EVENTS (start, \"end\", eventType, text, globalTid) SELECT start, \"end\", 59, printf('%.6000c', 'x'), globalTid FROM {K}RUNTIME LIMIT 40")

    def tables() -> dict[str, list[str]]:
        store = read(path).store
        names = {r["name_id"]: r["text"] for r in store.query("SELECT * FROM name")}
        rows = {t: store.query(f'SELECT * FROM "{t}"') for t in ("gpu_op", "api", "sync", "event_record", "nvtx", "cpu_op")}
        return {t: sorted(str(r | {"name_id": names.get(r.get("name_id", -1))}) for r in found) for t, found in rows.items()}

    whole = tables()
    monkeypatch.setattr(nsys_sqlite, "_WORTH_PARTS", 0)
    monkeypatch.setattr(nsys_sqlite, "_BYTES_AT_ONCE", 4096)
    for module in (nsys_sqlite, nsys_tables):
        monkeypatch.setattr(module, "cpus", lambda: 5)
    monkeypatch.setattr(nsys_sqlite, "_BATCH_ROWS", 16)
    assert len(nsys_sqlite.SqliteTables(path).readers(f"{K}RUNTIME")) == 5
    assert tables() == whole


def test_names_lose_their_suffixes_and_only_used_ones_are_kept() -> None:
    store = read(NEW).store
    names = {r["text"] for r in store.query("SELECT n.text FROM api JOIN name n USING (name_id)")}
    assert {"cudaLaunchKernel", "cudaStreamWaitEvent", "cudaEventRecord", "cudaMemcpyAsync"} <= names
    assert not any("_v" in n for n in names)
    assert store.count("name") < 60


def test_nothing_of_the_environment_is_copied(changed: Callable[..., Path]) -> None:
    secret = "s3cr3t-v4lue"
    path = changed(
        f"INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'HF_TOKEN=\"{secret}\"')",
        "INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK=\"3\"')",
        f"INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'x', 'Env', 1, 'HF_TOKEN={secret}')",
        f"INSERT INTO StringIds VALUES (99999999, 'HF_TOKEN={secret}')",
    )
    store = read(path).store
    assert store.query("SELECT secrets, rank FROM capture") == [{"secrets": 1, "rank": 3}]
    for table in sorted(store.captured):
        assert secret not in str(store.query(f'SELECT * FROM "{table}"')), table


def test_nvtx_depth(changed: Callable[..., Path]) -> None:
    rows = read(NEW).store.query("SELECT n.text, v.depth, count(*) AS n FROM nvtx v JOIN name n USING (name_id) WHERE n.text IN ('step', 'backward', 'allreduce') GROUP BY ALL ORDER BY depth")
    assert rows == [{"text": "step", "depth": 0, "n": 20}, {"text": "backward", "depth": 1, "n": 20}, {"text": "allreduce", "depth": 2, "n": 40}]


def test_emit_nvtx_ranges_are_operators(changed: Callable[..., Path]) -> None:
    path = changed("UPDATE NVTX_EVENTS SET text = 'aten::add_, seq = 12, op_id = ' || rowid WHERE text = 'forward'", "UPDATE NVTX_EVENTS SET text = 'aten::to, op_id = 7' WHERE text = 'h2d'")
    store = read(path).store
    assert store.query("SELECT n.text, count(*) AS n FROM cpu_op JOIN name n USING (name_id) GROUP BY ALL ORDER BY ALL") == [{"text": "aten::add_", "n": 20}, {"text": "aten::to", "n": 20}]
    assert store.count("nvtx") == 142 - 40


def test_sync_kind_ignores_synctype_and_survives_missing_calls(changed: Callable[..., Path]) -> None:
    wrong = read(changed(f"UPDATE {K}SYNCHRONIZATION SET syncType = 0")).store
    assert {r["kind"]: r["n"] for r in wrong.query("SELECT kind, count(*) AS n FROM sync GROUP BY kind")} == {"device": 2, "stream_wait_event": 80}
    bare = read(changed(f"DELETE FROM {K}RUNTIME")).store
    assert {r["kind"]: r["n"] for r in bare.query("SELECT kind, count(*) AS n FROM sync GROUP BY kind")} == {"device": 2, "stream_wait_event": 80}


def test_sync_rows_of_other_processes_with_the_same_correlation_do_not_mix(changed: Callable[..., Path]) -> None:
    twin = "globalPid + (7 << 24)"
    path = changed(
        f"CREATE TEMP TABLE k AS SELECT * FROM {K}KERNEL", f"UPDATE k SET globalPid = {twin}", f"INSERT INTO {K}KERNEL SELECT * FROM k",
        f"CREATE TEMP TABLE s AS SELECT * FROM {K}SYNCHRONIZATION", f"UPDATE s SET globalPid = {twin}", f"INSERT INTO {K}SYNCHRONIZATION SELECT * FROM s",
        f"CREATE TEMP TABLE r AS SELECT * FROM {K}RUNTIME",
        "UPDATE r SET globalTid = globalTid + (7 << 24), nameId = (SELECT id FROM StringIds WHERE value LIKE 'cudaEventRecord%' LIMIT 1)", f"INSERT INTO {K}RUNTIME SELECT * FROM r",
    )
    store = read(path).store
    first = store.query("SELECT rank, kind, count(*) AS n FROM sync WHERE rank = 0 GROUP BY ALL ORDER BY ALL")
    assert first == [{"rank": 0, "kind": "device", "n": 2}, {"rank": 0, "kind": "stream_wait_event", "n": 80}]
    assert store.query("SELECT rank, count(*) AS n FROM gpu_op WHERE kind = 'comm' GROUP BY rank ORDER BY rank") == [{"rank": 0, "n": 42}, {"rank": 1, "n": 42}]


def test_rows_with_impossible_times_are_dropped_and_counted(changed: Callable[..., Path]) -> None:
    path = changed(f"UPDATE {K}KERNEL SET \"end\" = start - 5 WHERE rowid % 10 = 0", f"UPDATE {K}RUNTIME SET start = 9223372036854775807, \"end\" = 9223372036854775807 WHERE rowid = 1")
    store = read(path).store
    assert store.query("SELECT dropped FROM capture") == [{"dropped": 26}]
    assert store.query('SELECT count(*) AS n FROM gpu_op WHERE "end" < start') == [{"n": 0}]


def test_a_report_without_kernels_captures_no_gpu_work(changed: Callable[..., Path]) -> None:
    store = read(changed(f"DROP TABLE {K}KERNEL", f"DROP TABLE {K}MEMCPY")).store
    assert "gpu_op" not in store.captured
    assert "api" in store.captured


def test_records_without_a_table_leave_the_order_unknown(changed: Callable[..., Path]) -> None:
    assert "event_record" not in read(changed(f"DROP TABLE {K}CUDA_EVENT")).store.captured


def test_adapters_without_work_are_left_out(changed: Callable[..., Path]) -> None:
    columns = "vmId, id, name, cuDevice"
    path = changed(f"INSERT INTO TARGET_INFO_GPU ({columns}) VALUES (0, 1, 'Intel Iris', 1)", "DELETE FROM TARGET_INFO_GPU WHERE 0")
    assert [r["name"] for r in read(path).store.query("SELECT name FROM gpu")] == ["NVIDIA H200"]


def test_a_view_in_place_of_a_table_is_not_run(changed: Callable[..., Path]) -> None:
    endless = "WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT * FROM n"
    store = read(changed("DROP TABLE NVTX_EVENTS", f"CREATE VIEW NVTX_EVENTS AS {endless}")).store
    assert store.count("nvtx") == 0
    assert store.count("gpu_op") == 276


@pytest.mark.parametrize("base", [NEW, STACKS], ids=["plain", "backtraces"])
def test_parquetdir_gives_the_same_tables(tmp_path: Path, changed: Callable[..., Path], base: Path) -> None:
    folder = tmp_path / "report_pqtdir"
    folder.mkdir()
    with closing(sqlite3.connect(changed(base=base))) as db:
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'ENUM%'").fetchall():
            cursor = db.execute(f'SELECT * FROM "{table}"')
            names = [d[0] for d in cursor.description]
            rows = cursor.fetchall()
            if rows:
                pq.write_table(pa.table({n: [r[i] for r in rows] for i, n in enumerate(names)}), folder / f"{table}.parquet")
    one, other = read(base).store, read(folder).store
    assert (one.count("pystack") > 0) == (base == STACKS)
    for table in ("gpu_op", "api", "sync", "event_record", "stream", "nvtx", "gpu_mem", "pystack"):
        assert one.query(f"SELECT * EXCLUDE ({'name_id' if table in ('gpu_op', 'api', 'nvtx') else 'rank'}) FROM {table} ORDER BY ALL") == other.query(
            f"SELECT * EXCLUDE ({'name_id' if table in ('gpu_op', 'api', 'nvtx') else 'rank'}) FROM {table} ORDER BY ALL"), table


@pytest.mark.parametrize(("name", "content", "words"), [
    ("r.nsys-rep", b"just text\n", "its content is not one"), ("r.sqlite", b"SQLite format 3\0" + bytes(50), "truncated"),
    ("r.sqlite", b"", "empty file"), ("r.sqlite", b"nothing of the kind", "its content is not one"),
])
def test_files_that_are_no_reports(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_truncated_database_and_one_that_is_no_report(tmp_path: Path, changed: Callable[..., Path]) -> None:
    whole = changed()
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(whole.read_bytes()[:300_000])
    with pytest.raises(InputError, match="truncated: 300,000 of"):
        read(cut)
    other = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(other)) as db:
        db.execute("CREATE TABLE t (a)")
        db.commit()
    with pytest.raises(InputError, match="not an nsys export"):
        read(other)


def test_every_published_report(tmp_path: Path) -> None:
    for path in sorted((shared_dir("captures") / "public" / "nsys").glob("*.sqlite")):
        store = read(path).store
        assert store.query("SELECT kind FROM capture") == [{"kind": "nsys"}]
        assert store.query('SELECT count(*) AS n FROM api WHERE "end" < start') == [{"n": 0}]


def test_two_gpus_in_one_report() -> None:
    store = read(shared_dir("captures") / "public" / "nsys" / "nsysai_mfu_2gpu_before.sqlite").store
    rows = store.query("SELECT rank, device, count(*) FILTER (WHERE kind IN ('kernel', 'comm')) AS kernels FROM gpu_op GROUP BY ALL ORDER BY ALL")
    assert rows == [{"rank": 0, "device": 0, "kernels": 1993}, {"rank": 1, "device": 1, "kernels": 2017}]
    assert "event_record" not in store.captured


def test_temporary_copies_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    read(NEW).store.close()
    assert not list(tmp_path.iterdir())
