"""Run folders: records of probes, captures and logs beside them, and what a kill leaves."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.errors import InputError
from gpudoctor.rundir import RunDir
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest

DATA = Path(__file__).parents[1] / "data" / "captures"


def read(root: Path) -> Ingested:
    return ingest([root], IngestOptions(cache=False, debug=True))


def record(run: RunDir, rank: int, *lines: tuple[str, dict[str, Any]], tail: str = "") -> None:
    run.probe_file(rank).write_text("".join(json.dumps(line) + "\n" for line in lines) + tail, "utf-8")


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir.create(tmp_path / "run")
    made.update_info(state="done", world_size=2)
    return made


def test_scalars_are_broadcast_and_columns_may_differ(run: RunDir) -> None:
    record(run, 0,
           ("grad_stat", {"rank": 0, "step": 1, "stage": "local", "param_id": [0, 1], "norm": [0.5, 2]}),
           ("grad_stat", {"rank": 0, "step": 2, "stage": "local", "param_id": [0], "norm": [1.0], "zeros": [7]}),
           ("rank_info", {"rank": 0, "world_size": 2, "pid": 10}))
    rows = read(run.root).store.query("SELECT rank, step, param_id, norm, zeros FROM grad_stat ORDER BY step, param_id")
    assert rows == [
        {"rank": 0, "step": 1, "param_id": 0, "norm": 0.5, "zeros": None}, {"rank": 0, "step": 1, "param_id": 1, "norm": 2.0, "zeros": None},
        {"rank": 0, "step": 2, "param_id": 0, "norm": 1.0, "zeros": 7},
    ]


def test_a_broken_last_line_and_unknown_words_are_tolerated(run: RunDir) -> None:
    record(run, 0, ("step", {"rank": 0, "step": 0, "start": 1, "end": 2, "novel": 3}), ("table_of_the_future", {"a": 1}),
           ("step", {"rank": 0, "step": [1, 2], "start": [1], "end": 2}), tail='["step", {"rank": 0, "st')
    result = read(run.root)
    assert result.store.query("SELECT step FROM step") == [{"step": 0}]
    assert result.store.query("SELECT kind, dropped, truncated FROM capture") == [{"kind": "run", "dropped": 2, "truncated": True}]
    assert (result.subject_kind, result.problems) == ("run", [])


def test_values_of_the_wrong_type_become_null(run: RunDir) -> None:
    record(run, 0, ("grad_stat", {"rank": 0, "step": 0, "param_id": [0, 1, 2], "norm": [1, "much", None], "numel": [2**70, 5, "x"]}))
    assert read(run.root).store.query("SELECT norm, numel FROM grad_stat ORDER BY param_id") == [
        {"norm": 1.0, "numel": None}, {"norm": None, "numel": 5}, {"norm": None, "numel": None}]


def test_one_row_a_rank_whoever_wrote_it(run: RunDir) -> None:
    record(run, 0, ("rank_info", {"rank": 0, "world_size": 2, "backend": "gloo", "state": "running"}))
    (run.capture / "launch.jsonl").write_text(json.dumps(["rank_info", {"rank": 0, "state": "failed", "exit_code": 3, "t_end": 99}]) + "\n")
    assert read(run.root).store.query("SELECT rank, world_size, backend, state, exit_code FROM rank_info") == [
        {"rank": 0, "world_size": 2, "backend": "gloo", "state": "failed", "exit_code": 3}]


def test_captures_are_put_on_the_clock_of_the_probes(run: RunDir) -> None:
    for rank in (0, 1):
        record(run, rank, ("rank_info", {"rank": rank, "world_size": 2}))
        shutil.copy(DATA / f"kineto_ddp_gloo.rank{rank}.json.gz", run.capture / f"kineto.rank{rank}.json.gz")
    result = read(run.root)
    assert set(result.kinds) >= {"trace", "run"}
    first = result.store.query("SELECT rank, min(start) AS start FROM gpu_op GROUP BY rank ORDER BY rank")
    assert [r["rank"] for r in first] == [0, 1]
    assert all(r["start"] > 1_790_857_026_000_000_000 for r in first), "ns since 1970"


def test_processes_of_a_report_are_the_ranks_of_the_probes(run: RunDir) -> None:
    record(run, 1, ("rank_info", {"rank": 1, "world_size": 2, "pid": 897}))
    shutil.copy(DATA / "nsys_3.7.2_wrong_order.sqlite.gz", run.capture / "run.sqlite.gz")
    (run.capture / "run.nsys-rep").write_bytes(b"\x00\x01 stands beside its export")
    result = read(run.root)
    assert result.store.query("SELECT DISTINCT rank FROM gpu_op") == [{"rank": 1}]
    assert result.problems == []


def test_tables_answer_when_the_captures_are_gone(run: RunDir) -> None:
    record(run, 0, ("step", {"rank": 0, "step": [0, 1], "start": [0, 10], "end": [5, 15]}))
    read(run.root).store.write_parquet(run.tables)
    shutil.rmtree(run.capture)
    result = read(run.root)
    assert result.store.query("SELECT count(*) AS n FROM step") == [{"n": 2}]
    assert "run" in result.kinds
    (run.tables / "step.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match="damaged table"):
        read(run.root)


def test_an_empty_run_folder_is_refused(run: RunDir) -> None:
    with pytest.raises(InputError, match="nothing in it to read"):
        read(run.root)
