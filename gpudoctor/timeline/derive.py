"""Compute derived tables once, from the canonical ones."""

from __future__ import annotations

from importlib.resources import files

from gpudoctor.timeline.order_table import order_streams
from gpudoctor.timeline.steps import find_steps
from gpudoctor.timeline.store import Store


def derive(store: Store) -> None:
    """Fill every derived table from what the store holds; call it once, after the last `add`."""
    _run(store, "kind_of_name", "launch_call")
    find_steps(store)
    _run(store, "step_span", "op", "host_call", "call_site", "host_wait", "gpu_step", "segment", "step_time", "gap", "collective_wait", "untraced_graph")
    order_streams(store)


def _run(store: Store, *modules: str) -> None:
    for module in modules:
        store.connection.execute(files("gpudoctor.timeline").joinpath("sql", f"{module}.sql").read_text("utf-8"))
