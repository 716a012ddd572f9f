"""The store: rows that wait to be written are there for whoever looks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from gpudoctor.timeline import store as module
from gpudoctor.timeline.store import Store


def calls(*starts: int, **columns: list[int]) -> pa.Table:
    return pa.table({"rank": [0] * len(starts), "start": list(starts), **columns})


def test_what_was_added_is_seen_by_every_way_to_look() -> None:
    for look in (lambda s: len(s.query("SELECT * FROM api")), lambda s: s.count("api"), lambda s: s.table("api").num_rows,
                 lambda s: s.connection.execute("SELECT count(*) FROM api").fetchall()[0][0]):
        store = Store()
        store.add("api", calls(1))
        store.add("api", calls(2, 3))
        assert look(store) == 3
        store.add("api", calls(4))
        assert look(store) == 4


def test_tables_of_other_columns_are_joined() -> None:
    store = Store()
    store.add("api", calls(1, corr=[7]))
    store.add("api", calls(2, tid=[9]))
    assert store.query("SELECT start, corr, tid FROM api ORDER BY start") == [{"start": 1, "corr": 7, "tid": None}, {"start": 2, "corr": None, "tid": 9}]


def test_texts_are_joined_by_dictionary_or_plain() -> None:
    store = Store()
    for kind in ("kernel", "comm", "kernel"):
        store.add("gpu_op", pa.table({"kind": pa.array([kind]).dictionary_encode()}))
        store.add("gpu_op", pa.table({"kind": [kind.upper()]}))
    assert sorted(store.table("gpu_op")["kind"].to_pylist()) == ["COMM", "KERNEL", "KERNEL", "comm", "kernel", "kernel"]


def test_names_keep_their_numbers() -> None:
    store = Store()
    first = store.intern(pa.array(["a", "b"])).to_pylist()
    assert store.intern(pa.array(["b", None, "c"])).to_pylist()[0] == first[1]
    assert store.count("name") == 3


def test_a_wrong_column_or_type_is_refused_when_it_is_added() -> None:
    store = Store()
    with pytest.raises(KeyError):
        store.add("api", calls(1, colour=[1]))
    with pytest.raises(pa.ArrowInvalid):
        store.add("api", pa.table({"start": ["soon"]}))
    assert store.count("api") == 0


def test_more_than_may_wait_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 1000)
    store = Store()
    for n in range(100):
        store.add("api", calls(*range(n, n + 10)))
        assert store._waiting_bytes <= 1000
    assert store.count("api") == 1000


def test_compute_reads_the_tables_it_is_given() -> None:
    store = Store()
    store.add("api", calls(5))
    answer = store.compute("SELECT start + 1 AS next FROM rows ORDER BY 1", rows=calls(2, 1))
    assert answer["next"].to_pylist() == [2, 3]
