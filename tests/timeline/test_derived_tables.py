"""The derived tables are what their description says, column by column."""

from __future__ import annotations

from importlib.resources import files

import pytest

from gpudoctor.tables.derived import DERIVED
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store
from tests.timeline.planted import read

TYPES = {"int": "BIGINT", "float": "DOUBLE", "text": "VARCHAR", "bool": "BOOLEAN"}


def columns(store, table):
    return store.connection.execute(f'DESCRIBE "{table}"').fetchall()


@pytest.mark.parametrize("name", DERIVED)
def test_columns_are_as_described(name):
    seen = [(c[0], c[1]) for c in columns(read("nsys/clean_overlap").store, name)]
    assert seen == [(c.name, TYPES[c.type]) for c in DERIVED[name].columns]


@pytest.mark.parametrize("name", DERIVED)
def test_texts_keep_to_their_choices(name):
    for column in DERIVED[name].columns:
        if column.choices:
            for capture in ("nsys/unsynced_comm", "kineto/ddp_gloo_2rank.rank0", "nsys/legacy_default_stream_serialisation"):
                seen = {next(iter(r.values())) for r in read(capture).store.query(f'SELECT DISTINCT "{column.name}" FROM "{name}"')}
                assert seen <= {*column.choices, None}


def test_every_module_says_what_it_makes():
    modules = [p for p in files("gpudoctor.timeline").joinpath("sql").iterdir() if p.name.endswith(".sql")]
    assert len(modules) >= 15
    for module in modules:
        first = module.read_text("utf-8").splitlines()[0]
        assert first.startswith(f"-- {module.name.removesuffix('.sql')}: "), module.name


def test_an_empty_store_derives_empty_tables():
    store = Store()
    derive(store)
    assert {store.count(name) for name in DERIVED} == {0}


def test_null_everywhere_derives_too():
    store = Store()
    store.add_rows("gpu_op", [{"rank": 0}, {"rank": None, "start": 5, "end": 4}, {"rank": 0, "device": 0, "stream": 7, "kind": "kernel", "start": 1, "end": 9, "corr": 3}])
    store.add_rows("api", [{"rank": 0, "corr": 3, "start": 0, "end": 1}, {"rank": 0, "corr": 3, "start": 0, "end": 1}, {"rank": None}])
    store.add_rows("sync", [{"rank": 0, "kind": "event"}, {"rank": 0, "kind": "stream_wait_event", "start": 1}])
    store.add_rows("event_record", [{"rank": 0}])
    store.add_rows("nvtx", [{"rank": 0}, {"rank": 0, "start": 5}])
    derive(store)
    assert store.query("SELECT count(*) AS n FROM op WHERE corr = 3")[0]["n"] == 1


def test_memory_over_time_adds_up():
    rows = read("nsys/malloc_free_in_loop").store.query("SELECT max(in_use) AS most, min(in_use) AS least FROM memory_use WHERE kind = 'device'")[0]
    assert rows["most"] - rows["least"] >= (16 + 32) << 20
