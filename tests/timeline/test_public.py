"""Captures from public repositories, where they lie beside the checkout."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from gpudoctor.model import Severity
from gpudoctor.report.build import steps_by_rank
from gpudoctor.rulebook.detect import detect_in_tables
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import load_rules
from gpudoctor.timeline.ingest import IngestOptions, ingest
from tests.shared import shared_dir

FILES = ("nsys/Athrun0109_result", "nsys/jsun012_result", "nsys/nsysai_mfu_2gpu_before", "nsys/zx3xyy_result_2_7B_nvtx", "kineto/HTA__df_index_resolver",
         "kineto/HTA__nccl_parser", "kineto/HTA__critical_path_cuda_event_sync_multi", "kineto/TraceLens__mi300", "kineto/kineto_tbplugin")


@cache
def diagnose(*names: str):
    folder: Path = shared_dir("captures") / "public"
    taken = ingest([next(folder.glob(f"{n}*")) for n in names], IngestOptions(cache=False))
    seen = detect_in_tables(load_rules(), taken.store, taken.kinds)
    return {f.name: f for f in findings_from(seen.evidence, *steps_by_rank(taken.store))}, {a.name for a in seen.abstained}, taken.store


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_blamed_without_evidence(name):
    found, _, _ = diagnose(name)
    assert [f.message for f in found.values() if f.severity >= Severity.warning] == []


def test_two_gpus_of_one_report():
    _, _, store = diagnose("nsys/nsysai_mfu_2gpu_before")
    rows = store.query("SELECT rank, device, sum(busy) / sum(span) AS use FROM step_time GROUP BY rank, device ORDER BY rank")
    assert [(r["rank"], r["device"]) for r in rows] == [(0, 0), (1, 1)]
    assert all(0 < r["use"] <= 1 for r in rows)


def test_the_storm_outside_steps_is_a_note():
    found = diagnose("nsys/zx3xyy_result_2_7B_nvtx")[0]["alloc-in-loop"]
    assert (found.values["allocs"], found.values["frees"], found.severity) == (244, 241, Severity.note)


def test_synchronisation_by_name_though_every_type_is_zero():
    found, _, store = diagnose("nsys/jsun012_result")
    assert {r["kind"]: r["n"] for r in store.query("SELECT kind, count(*) AS n FROM sync GROUP BY kind")} == {"device": 15, "stream": 112, "event_query": 42}
    assert found["sync-in-hot-loop"].count == 5


def test_waits_with_their_records_are_an_order():
    store = diagnose("kineto/HTA__critical_path_cuda_event_sync_multi")[2]
    assert {r["reason"] for r in store.query("SELECT reason FROM stream_order")} == {"host_sync"}


def test_amd_collectives_are_found():
    found, _, store = diagnose("kineto/TraceLens__mi300")
    assert store.query("SELECT count(*) AS n FROM op WHERE kind = 'comm' AND step IS NOT NULL")[0]["n"] > 0
    assert found["exposed-communication"].values["share"] > 0.5


def test_sampled_ranks_go_together():
    found, _, store = diagnose("kineto/HTA__trace_filter_sampled_rank-0", "kineto/HTA__trace_filter_sampled_rank-1")
    assert {r["rank"] for r in store.query("SELECT DISTINCT rank FROM step_time")} == {0, 1}
    assert found["exposed-communication"].ranks == [0, 1]


def test_order_that_was_not_recorded_is_no_answer():
    _, abstained, _ = diagnose("kineto/HTA__df_index_resolver")
    assert {"stream-missing-wait", "stream-wrong-order"} <= abstained
