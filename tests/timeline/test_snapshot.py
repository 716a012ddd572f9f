"""Allocator snapshots: read in bounded memory, classes refused, truths of the planted ones."""

from __future__ import annotations

import gzip
import pickle
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.errors import InputError
from gpudoctor.rulebook.detect import detect_in_tables
from gpudoctor.rulebook.load import load_rules
from gpudoctor.timeline.ingest import memory
from gpudoctor.timeline.ingest.plain_pickle import load_plain
from gpudoctor.timeline.memory_compare import compare_memory
from gpudoctor.timeline.store import Store
from tests.shared import shared_dir

DATA = Path(__file__).parents[1] / "data" / "memory"


def read(path: Path, rank: int = 0) -> Store:
    store = Store()
    memory.read(path, rank, store)
    return store


def slugs(store: Store) -> dict[str, str]:
    seen = detect_in_tables(_rules(), store, ["memory"])
    return {rule.slug: str(evidence.severity or rule.severity) for rule, evidence in seen.evidence}


_rules = cache(load_rules)


def write(path: Path, value: Any, protocol: int = 4) -> Path:
    path.write_bytes(pickle.dumps(value, protocol))
    return path


def snapshot(blocks: int = 2, frames: Any = ()) -> dict[str, Any]:
    return {
        "segments": [{
            "device": 0, "address": 1000, "total_size": 1024 * blocks, "stream": 0, "segment_type": "small",
            "blocks": [{"address": 1000 + 1024 * i, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": list(frames)} for i in range(blocks)],
        }],
        "device_traces": [[{"action": "alloc", "addr": 1000, "size": 1024, "stream": 0, "time_us": 5, "frames": list(frames)}]],
    }


def test_the_planted_fragmentation_is_counted_to_the_byte() -> None:
    store = read(DATA / "mem_fragmentation.pickle")
    row = store.query("SELECT sum(bytes) AS reserved, sum(bytes) FILTER (WHERE state = 'active') AS active, max(bytes) FILTER (WHERE state = 'inactive') AS largest, count(DISTINCT segment) AS segments FROM mem_block")[0]
    assert (row["reserved"], row["active"], row["largest"], row["segments"]) == (1444937728, 814743552, 15728640, 44)
    actions = {r["action"]: r["n"] for r in store.query("SELECT action, count(*) AS n FROM mem_event GROUP BY action")}
    assert actions == {"segment_alloc": 41, "alloc": 161, "free_requested": 120, "free_completed": 120}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mem_clean", set()), ("mem_fragmentation", {"memory-fragmentation"}), ("graph_kept", {"loss-accumulated-with-graph"}),
        ("stream_per_epoch", {"stream-created-in-loop"}), ("oom", {"oom-explained"}),
    ],
)
def test_each_planted_snapshot_gives_its_finding_and_no_other(name: str, expected: set[str]) -> None:
    assert set(slugs(read(DATA / f"{name}.pickle"))) == expected


def test_the_same_as_pickle_itself_reads() -> None:
    for path in DATA.glob("*.pickle"):
        data = path.read_bytes()
        with path.open("rb") as file:
            assert load_plain(file, path.name) == pickle.loads(data)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_binary_protocol(tmp_path: Path, protocol: int) -> None:
    store = read(write(tmp_path / "s.pickle", snapshot(3, [{"filename": "train.py", "line": 7, "name": "main"}]), protocol))
    assert store.count("mem_block") == 3
    assert store.query("SELECT DISTINCT file, line, func, depth FROM mem_stack") == [{"file": "train.py", "line": 7, "func": "main", "depth": 0}]


def test_a_compressed_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle.gz"
    path.write_bytes(gzip.compress((DATA / "mem_clean.pickle").read_bytes()))
    assert read(path).count("mem_block") == 18


def test_stacks_that_events_share_are_one(tmp_path: Path) -> None:
    frames = [{"filename": "a.py", "line": 1, "name": "f"}, {"filename": "b.py", "line": 2, "name": "g"}]
    value = snapshot(1, frames)
    value["device_traces"][0] = [{"action": "alloc", "addr": i, "size": 512, "stream": 0, "time_us": i, "frames": frames} for i in range(5000)]
    store = read(write(tmp_path / "s.pickle", value))
    assert store.count("mem_stack") == 2
    assert store.query("SELECT count(DISTINCT stack_id) AS n, count(*) AS rows FROM mem_event")[0] == {"n": 1, "rows": 5000}


class Evil:
    def __reduce__(self) -> Any:
        return print, ("owned",)


def hostile() -> dict[str, bytes]:
    good = pickle.dumps(snapshot(), 4)
    deep = b"\x80\x04" + b"(" * 100_000 + b"."
    nested = b"\x80\x04" + b"]" * 3_000_000 + b"a" * 2_999_999 + b"."
    blocks = [{"address": 1, "size": 1, "state": "inactive", "frames": []}] * 2000
    segment = {"device": 0, "address": 1, "total_size": 1, "stream": 0, "blocks": blocks}
    return {
        "a class": pickle.dumps({"segments": [Evil()]}, 4),
        "a class by name": b"\x80\x02cos\nsystem\n(S'true'\ntR.",
        "marks without end": deep,
        "lists in lists": nested,
        "a text that is not there": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
        "a huge integer": b"\x80\x04\x8b" + struct.pack("<i", 100_000) + b"\xff" * 100_000 + b".",
        "a memo that was never filled": b"\x80\x04j\xff\xff\xff\x00.",
        "one list of blocks, thousands of times": pickle.dumps({"segments": [dict(segment) for _ in range(2000)], "device_traces": []}, 4),
        "cut short": good[: len(good) // 2],
        "segments that are none": pickle.dumps({"segments": {"a": 1}}, 4),
        "no snapshot": pickle.dumps({"segmentsx": 1}, 4),
        "wrong types": pickle.dumps({"segments": [1, 2, 3]}, 4),
        "texts for numbers": pickle.dumps({"segments": [{"device": "x", "address": "y", "total_size": "z", "stream": [], "blocks": [{"size": "a", "state": "b"}]}]}, 4),
        "numbers beyond 64 bits": pickle.dumps({"segments": [{"device": 0, "address": 1 << 80, "total_size": 1, "stream": 0, "blocks": [{"size": 1, "state": "inactive"}]}]}, 4),
    }


@pytest.mark.parametrize("name", list(hostile()))
def test_hostile_files_end_in_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(hostile()[name])
    with pytest.raises(InputError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_many_events_stay_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "BATCH", 1000)
    monkeypatch.setattr(memory, "KEPT_BATCHES", 2)
    value = snapshot(1)
    value["device_traces"][0] = [{"action": "oom" if i == 3 else "alloc", "addr": i, "size": 512, "stream": 0, "time_us": i, "frames": [], "device_free": 7} for i in range(10_500)]
    store = read(write(tmp_path / "s.pickle", value))
    rows = store.query("SELECT min(seq) FILTER (WHERE action = 'alloc') AS first, max(seq) AS last, count(*) FILTER (WHERE action = 'oom') AS ooms FROM mem_event")[0]
    assert rows["last"] == 10_499
    assert rows["first"] >= 7_000
    assert rows["ooms"] == 1
    assert store.query("SELECT kind FROM fact") == [{"kind": "snapshot-events-dropped"}]


def test_two_ranks_unlike(tmp_path: Path) -> None:
    store = Store()
    for rank, size in ((0, 12 << 30), (1, 8 << 30)):
        value = snapshot(1)
        value["segments"][0] |= {"device": rank, "total_size": size, "blocks": [{"address": 1000, "size": size, "requested_size": size, "state": "active_allocated", "frames": []}]}
        memory.read(write(tmp_path / f"rank{rank}.pickle", value), rank, store)
    assert "memory-imbalance" in slugs(store)


def test_comparing_two_snapshots_names_the_place_that_grew(tmp_path: Path) -> None:
    few = read(write(tmp_path / "a.pickle", snapshot(2, [{"filename": "train.py", "line": 7, "name": "main"}])))
    more = read(write(tmp_path / "b.pickle", snapshot(9, [{"filename": "train.py", "line": 7, "name": "main"}])))
    changes = {c.what: (c.before, c.after) for c in compare_memory(few, more)}
    assert changes["train.py:7"] == (2048, 9216)
    assert changes["rank 0, device 0: live"] == (2048, 9216)
    assert compare_memory(few, Store()) == []


def test_a_snapshot_from_the_wild() -> None:
    store = read(next(shared_dir("captures/public/memory").glob("*.pickle")))
    assert store.count("mem_block") == 1418
    assert slugs(store) == {}
