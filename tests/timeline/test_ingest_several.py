"""Several files at once: ranks, clocks, folders, worker processes, Dask, and what goes wrong in one of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.errors import InputError, UsageError
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ahead, ingest, workers

DATA = Path(__file__).parents[1] / "data" / "captures"
RANKS = [DATA / f"kineto_ddp_gloo.rank{r}.json.gz" for r in (0, 1)]
NSYS = [DATA / "nsys_3.7.2_wrong_order.sqlite.gz", DATA / "nsys_3.20.3_clean_overlap.sqlite.gz"]


def read(*paths: Path, **options: Any) -> Ingested:
    return ingest(list(paths), IngestOptions(cache=False, debug=True, **options))


def trace(path: Path, start: float, rank: int | None = None, base: int = 0) -> Path:
    event = {"ph": "X", "cat": "kernel", "name": "k", "tid": 7, "ts": start, "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 1}}
    about: dict[str, Any] = {"baseTimeNanoseconds": base} | ({} if rank is None else {"distributedInfo": {"rank": rank, "world_size": 2}})
    path.write_text(json.dumps({**about, "traceEvents": [event]}))
    return path


def contents(result: Ingested) -> dict[str, list[dict[str, Any]]]:
    """Tables with names in place of ids, which depend on the order of reading."""
    names = {r["name_id"]: r["text"] for r in result.store.query("SELECT * FROM name")}
    out = {}
    for table in ("gpu_op", "api", "sync", "nvtx", "cpu_op", "gpu_mem", "rank_info", "capture"):
        rows = result.store.query(f'SELECT * FROM "{table}"')
        out[table] = sorted(({k: names.get(v) if k == "name_id" else v for k, v in r.items()} for r in rows), key=str)
    return out


def test_ranks_come_from_the_traces_not_from_their_order() -> None:
    store = read(*reversed(RANKS)).store
    assert store.query("SELECT rank, world_size, backend FROM rank_info ORDER BY rank") == [{"rank": r, "world_size": 2, "backend": "gloo"} for r in (0, 1)]
    comm = store.query("""SELECT v.rank, round(sum(v."end" - v.start) / 1e6) AS ms FROM nvtx v JOIN name n USING (name_id) WHERE n.text = 'gloo:all_reduce' GROUP BY v.rank ORDER BY v.rank""")
    assert comm == [{"rank": 0, "ms": 89.0}, {"rank": 1, "ms": 21.0}]


def test_worker_processes_give_the_same_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    here = contents(read(*RANKS))
    monkeypatch.setattr(ahead, "WORTH_PROCESSES", 0)
    assert contents(read(*RANKS)) == here


def test_reading_begins_early_only_where_no_cache_may_have_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WORTH_PROCESSES", 0)
    begun: list[str] = []
    monkeypatch.setattr(workers.Workers, "submit", lambda self, path: begun.append(path.name))
    for number in (10, 2):
        trace(tmp_path / f"t{number}.json", number)
    (tmp_path / "other.json").write_text('{"no": "trace"}')
    for arguments in ([tmp_path], [tmp_path / "t10.json", tmp_path / "t2.json", tmp_path / "absent.json"]):
        ahead.Ahead(IngestOptions()).guess(arguments)
    assert begun == ["t2.json", "t10.json"] * 2
    (tmp_path / ".gpudoctor").mkdir()
    ahead.Ahead(IngestOptions()).guess([tmp_path])
    assert len(begun) == 4
    ahead.Ahead(IngestOptions(cache=False)).guess([tmp_path])
    assert len(begun) == 6


def test_a_worker_that_cannot_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WORTH_PROCESSES", 0)
    bad = tmp_path / "bad.json"
    bad.write_text('{"schemaVersion": 1, "traceEvents": 3}')
    result = read(*RANKS, bad)
    assert [p.split(": ", 1)[1] for p in result.problems] == ["JSON, but no Kineto trace (no list traceEvents)"]
    assert result.store.query("SELECT count(DISTINCT rank) AS n FROM gpu_op") == [{"n": 2}]


def test_a_worker_that_dies_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WORTH_PROCESSES", 0)
    monkeypatch.setattr(workers.sys, "executable", "/bin/false")
    with pytest.raises(InputError, match="ended with status 1") as caught:
        read(*RANKS)
    assert "\n" not in str(caught.value)


def test_equal_ranks_are_renumbered_and_told(tmp_path: Path) -> None:
    result = read(trace(tmp_path / "a.json", 5, rank=1), trace(tmp_path / "b.json", 6, rank=1))
    assert result.store.query("SELECT rank, start FROM gpu_op ORDER BY rank") == [{"rank": 0, "start": 6000}, {"rank": 1, "start": 5000}]
    assert any("says it is rank 1" in n for n in result.notes)


def test_files_without_ranks_are_numbered_in_the_order_given(tmp_path: Path) -> None:
    store = read(trace(tmp_path / "z.json", 5), trace(tmp_path / "a.json", 6)).store
    assert store.query("SELECT rank, start FROM gpu_op ORDER BY rank") == [{"rank": 0, "start": 5000}, {"rank": 1, "start": 6000}]


def test_a_folder_is_read_in_natural_order(tmp_path: Path) -> None:
    for number in (10, 2, 1):
        trace(tmp_path / f"t{number}.json", number)
    (tmp_path / "notes.md").write_text("nothing to read")
    store = read(tmp_path).store
    assert store.query("SELECT rank, start FROM gpu_op ORDER BY rank") == [{"rank": i, "start": n * 1000} for i, n in enumerate((1, 2, 10))]


def test_clocks_are_aligned_by_the_wall_clock(tmp_path: Path) -> None:
    one = trace(tmp_path / "a.json", 100, rank=0, base=1_700_000_000_000_000_000)
    two = trace(tmp_path / "b.json", 100, rank=1, base=1_700_000_000_000_500_000)
    result = read(one, two)
    assert result.store.query("SELECT rank, start FROM gpu_op ORDER BY rank") == [{"rank": 0, "start": 100_000}, {"rank": 1, "start": 600_000}]
    assert result.store.query("SELECT clock_offset FROM rank_info ORDER BY rank") == [{"clock_offset": None}, {"clock_offset": 500_000}]
    assert any("one clock" in n for n in result.notes)


def test_two_nsys_reports_share_one_numbering_and_clock() -> None:
    result = read(*NSYS)
    rows = result.store.query("SELECT rank, count(*) FILTER (WHERE kind = 'comm') AS comm FROM gpu_op GROUP BY rank ORDER BY rank")
    assert rows == [{"rank": 0, "comm": 42}, {"rank": 1, "comm": 42}]
    starts = result.store.query("SELECT epoch_ns, start FROM capture ORDER BY rank")
    assert starts[0]["epoch_ns"] == starts[1]["epoch_ns"], "shifted onto the first one's clock"
    assert starts[1]["start"] - starts[0]["start"] > 60e9, "recorded minutes apart"


def test_what_can_be_read_of_several_is_read(tmp_path: Path) -> None:
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(gzip.decompress(NSYS[0].read_bytes())[:300_000])
    result = read(tmp_path / "absent.json", cut, NSYS[1])
    assert result.store.query("SELECT count(DISTINCT rank) AS n FROM gpu_op") == [{"n": 1}]
    assert len(result.problems) == 2
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "absent.json")


def test_sixty_four_ranks_by_local_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "WORTH_PROCESSES", 0)
    about = json.loads(gzip.decompress(RANKS[0].read_bytes()))
    for rank in range(64):
        about["distributedInfo"] = {"rank": rank, "world_size": 64, "backend": "gloo"}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(about))
    one, all_of_them = read(RANKS[0]).store, read(tmp_path)
    assert not all_of_them.problems
    counts = {table: all_of_them.store.query(f'SELECT rank, count(*) AS n FROM "{table}" GROUP BY rank ORDER BY rank') for table in ("gpu_op", "api", "op", "gap")}
    for table, rows in counts.items():
        assert [r["rank"] for r in rows] == list(range(64)), table
        assert {r["n"] for r in rows} == {one.count(table)}, table


def test_dask_without_a_scheduler_is_a_usage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="needs the extra [dask]")
    monkeypatch.setattr(ahead, "_DASK_TIMEOUT_S", 1)
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        read(*RANKS, dask="tcp://127.0.0.1:9")


@pytest.fixture
def cluster() -> Iterator[str]:
    distributed = pytest.importorskip("distributed", reason="needs the extra [dask]")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local:
        yield local.scheduler_address


@pytest.mark.slow
def test_a_dask_cluster_of_two_workers_gives_the_same_tables(cluster: str) -> None:
    assert contents(read(*RANKS, dask=cluster)) == contents(read(*RANKS))
