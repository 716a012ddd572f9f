"""Flight-recorder dumps: pickle and JSON, the rank that is behind, what differs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.errors import InputError
from gpudoctor.rulebook.detect import detect_in_tables
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import load_rules
from gpudoctor.timeline.ingest import flight
from gpudoctor.timeline.store import Store
from tests.shared import shared_dir


def entry(seq: int, op: str = "all_reduce", state: str = "completed", size: int = 64, group: tuple[str, str] = ("0", "default_pg"), **more: Any) -> dict[str, Any]:
    return {
        "record_id": seq, "pg_id": 0, "process_group": group, "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "profiling_name": f"nccl:{op}",
        "time_created_ns": 1000 + seq, "input_sizes": [[size]], "input_dtypes": ["Float"], "output_sizes": [[size]], "output_dtypes": ["Float"],
        "state": state, "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": state == "completed", "is_p2p": False,
        "frames": [{"filename": "/x/site-packages/torch/distributed/c10d.py", "line": 3, "name": "all_reduce"}, {"filename": "train.py", "line": 21, "name": "main"}], **more,
    }


def dump(entries: list[dict[str, Any]], ranks: str = "[0, 1]") -> dict[str, Any]:
    last = max((e["collective_seq_id"] for e in entries), default=-1)
    return {
        "version": "2.9", "nccl_version": "2.27.3", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}},
        "pg_status": {"0": {"last_enqueued_collective": last, "last_started_collective": -1, "last_completed_collective": last}}, "entries": entries,
    }


def stories(tmp_path: Path, dumps: list[dict[str, Any]], as_json: bool = False) -> list[str]:
    store = Store()
    for rank, value in enumerate(dumps):
        path = tmp_path / f"trace_rank_{rank}"
        path.write_bytes(json.dumps(value).encode() if as_json else pickle.dumps(value, 2))
        assert flight.matches(path.read_bytes()[:4096], path)
        flight.read(path, rank, store)
    return told(store)


def told(store: Store) -> list[str]:
    book = load_rules().choose(("GD505", "GD507"))
    return [f"{f.name}: {f.message}" for f in findings_from(detect_in_tables(book, store, ["log"]).evidence)]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_that_never_came_is_named_with_the_line_of_those_that_wait(tmp_path: Path, as_json: bool) -> None:
    ahead = dump([entry(1), entry(2), entry(3, "all_to_all", "scheduled")])
    behind = dump([entry(1), entry(2)])
    assert stories(tmp_path, [ahead, behind], as_json) == ["hang: rank 1 is behind: it never came to collective 3 (all_to_all) of group 0 default_pg, in which rank 0 waits"]


def test_two_operations_in_one_place(tmp_path: Path) -> None:
    found = stories(tmp_path, [dump([entry(1), entry(2, state="scheduled")]), dump([entry(1), entry(2, "broadcast", "scheduled")])])
    assert found == ["collective-mismatch: in collective 2 of group 0 default_pg rank 0 calls all_reduce of 64 float32, but rank 1 calls broadcast of 64 float32"]


def test_two_sizes_of_one_operation(tmp_path: Path) -> None:
    found = stories(tmp_path, [dump([entry(1, size=64, state="scheduled")]), dump([entry(1, size=65, state="scheduled")])])
    assert [f.partition(":")[0] for f in found] == ["collective-mismatch"]


def test_dumps_of_a_healthy_job(tmp_path: Path) -> None:
    assert stories(tmp_path, [dump([entry(1), entry(2)]), dump([entry(1), entry(2)])]) == []


def test_sends_and_receives_are_counted_apart(tmp_path: Path) -> None:
    sends = [entry(1), entry(1, "send 0->1", "scheduled", is_p2p=True, p2p_seq_id=900)]
    assert stories(tmp_path, [dump(sends), dump([entry(1)])]) == []


def test_rows_of_a_collective(tmp_path: Path) -> None:
    path = tmp_path / "dump_7.json"
    path.write_text(json.dumps(dump([entry(1, state="scheduled")])))
    store = Store()
    assert flight.rank_of(path) == 7
    flight.read(path, 7, store)
    row = store.query('SELECT rank, "group", seq, op, dtype, numel, shape, state, path, line, func FROM collective')[0]
    assert row == {"rank": 7, "group": "0 default_pg", "seq": 1, "op": "all_reduce", "dtype": "float32", "numel": 64, "shape": "64", "state": "scheduled", "path": "train.py", "line": 21, "func": "main"}


@pytest.mark.parametrize("data", [
    b"\x80\x02cos\nsystem\n.", b'{"pg_config": ', b'{"pg_config": {}, "entries": 3}', b'{"entries": [{"a": 1}], "nccl_version": "2"}', b"\x80\x02]q\x00.",
    b'{"entries": [[1]], "pg_config": {"0": 3}}', b"[" * 100_000,
])
def test_damaged_dumps_end_in_one_line(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dump_0"
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        flight.read(path, 0, Store())
    assert "\n" not in str(caught.value)


def test_sixteen_ranks_of_a_real_job() -> None:
    store = Store()
    for path in sorted(shared_dir("captures/public/flight_recorder/gpu_error_1st").glob("_dump_*")):
        rank = flight.rank_of(path)
        assert rank is not None
        flight.read(path, rank, store)
    found = told(store)
    assert len(found) == 1
    assert found[0].startswith("hang: rank 12 is behind: it never came to collective 20537 (all_to_all) of group 74 EXPERT_MODEL_PARALLEL_GROUP, in which ranks 13, 14, 15 wait")
