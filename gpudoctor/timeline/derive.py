"""Compute derived tables once, from the canonical ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.resources import files

from gpudoctor.tables.derived import DERIVED
from gpudoctor.timeline.gpu_time import measure_steps
from gpudoctor.timeline.order_table import order_streams
from gpudoctor.timeline.steps import find_steps
from gpudoctor.timeline.store import Store

_SOURCES = ("gpu_op", "api", "nvtx", "cpu_op", "sync", "event_record", "pystack", "gpu_mem")
_TYPES = {"int": "BIGINT", "float": "DOUBLE", "text": "VARCHAR", "bool": "BOOLEAN"}
_EMPTY = ";".join(f'CREATE OR REPLACE TABLE {t.name} ({", ".join(f""""{c.name}" {_TYPES[c.type]}""" for c in t.columns)})' for t in DERIVED.values())


def derive(store: Store) -> None:
    """Fill every derived table from what the store holds; call it once, after the last `add`."""
    if not any(store.count(table) for table in _SOURCES):
        store.connection.execute(_EMPTY)
        _run(store, "race_cause")
        return
    _run(store, "race_cause", "kind_of_name", "launch_call")
    find_steps(store)
    _run(store, "traced_step", "step_span", "step_slot")
    _launches(store)
    with ThreadPoolExecutor(1) as beside:
        host = beside.submit(_run, store, "host_call", "call_site", "host_wait", "untraced_graph")
        _run(store, "gpu_step")
        measure_steps(store)
        _run(store, "collective_wait", "stream_time", "collective_rate", "copy_rate", "memory_use")
        host.result()
        gaps = beside.submit(_run, store, "gap")
        order_streams(store)
        gaps.result()


def _launches(store: Store) -> None:
    """Join GPU work to its launches; a join that multiplied rows met correlation ids twice, and is done again."""
    module = "op" if store.count("step_span") else "op_stepless"
    _run(store, module)
    believed = store.query('SELECT count(*) AS n FROM gpu_op WHERE "end" - start < 1000000000000000')[0]["n"]
    if store.count("op") > believed:
        _run(store, "launch_call_once", module)


def _run(store: Store, *modules: str) -> None:
    with closing(store.connection.cursor()) as cursor:
        for module in modules:
            cursor.execute(files("gpudoctor.timeline").joinpath("sql", f"{module}.sql").read_text("utf-8"))
