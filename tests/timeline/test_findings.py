"""What all rules say about the planted captures: the fault and nothing else at warning or above."""

from __future__ import annotations

import pytest

from gpudoctor.model import Confidence, Severity
from tests.timeline.planted import diagnose

ORDER = ("stream-missing-wait", "stream-wrong-order")
FAULTS = {
    "nsys/unsynced_comm": ("stream-missing-wait", 40), "nsys/wrong_order": ("stream-wrong-order", 40),
    "nsys2025/unsynced_comm": ("stream-missing-wait", 40), "nsys2025/wrong_order": ("stream-wrong-order", 40),
    "nsys/oversync_stream": ("sync-in-hot-loop", 240), "nsys/oversync_device": ("sync-in-hot-loop", 240), "nsys2025/oversync_stream": ("sync-in-hot-loop", 240),
    "nsys/d2h_item_each_step": ("sync-in-hot-loop", 20), "nsys/pageable_h2d": ("h2d-pageable", 20), "nsys2025/pageable_h2d": ("h2d-pageable", 20),
    "nsys/malloc_free_in_loop": ("alloc-in-loop", 80), "nsys/many_streams": ("stream-created-in-loop", 20), "nsys/launch_bound_tiny_kernels": ("launch-bound", None),
    "nsys/idle_gap_dataloader": ("dataloader-starvation", 19), "nsys/legacy_default_stream_serialisation": ("default-stream-serialises", None),
    "nsys/host_sync_order_clean": ("sync-in-hot-loop", 40),
    "kineto/item_each_step": ("sync-in-hot-loop", 6), "kineto/gradscaler_overflow": ("sync-in-hot-loop", 12), "kineto/empty_cache_each_step": ("empty-cache-in-loop", 18),
    "kineto/pageable_h2d": ("h2d-pageable", 6), "kineto/launch_bound": ("launch-bound", None), "kineto/dataloader_idle": ("gpu-idle-gap", 5),
    "kineto/d2h_read_too_early": ("d2h-nonblocking-no-sync", 6), "kineto/missing_wait_stream": ("stream-missing-wait", 6),
    "nsys2025/torch_missing_wait_stream": ("stream-missing-wait", 9),
}
CLEAN = ("nsys/clean_overlap", "nsys2025/clean_overlap", "nsys/pinned_h2d", "nsys2025/torch_ddp_nccl_1rank", "nsys/host_sync_order_clean",
         "nsys/legacy_default_stream_serialisation", "kineto/clean_side_stream", "kineto/clean_train", "kineto/cuda_graph_replay", "kineto/pinned_h2d",
         "kineto/ddp_gloo_2rank.rank0", "kineto/ddp_gloo_2rank.rank1", "nsys/cuda_graph_replay")
UNSURE = ("kineto/missing_wait_stream", "nsys2025/torch_missing_wait_stream")


@pytest.mark.parametrize("name", FAULTS)
def test_the_planted_fault_is_found(name):
    slug, count = FAULTS[name]
    found = [f for f in diagnose(name)[0] if f.name == slug]
    assert found, [f.name for f in diagnose(name)[0]]
    assert count is None or found[0].count == count
    others = {f.name for f in diagnose(name)[0] if f.severity >= Severity.warning} - {slug}
    assert not others


@pytest.mark.parametrize("name", CLEAN)
def test_clean_captures_stay_below_warning(name):
    assert [f.message for f in diagnose(name)[0] if f.severity >= Severity.warning] == []


@pytest.mark.parametrize("name", [n for n in dict.fromkeys((*FAULTS, *CLEAN)) if FAULTS.get(n, ("",))[0] not in ORDER])
def test_no_stream_is_blamed_for_another_fault(name):
    assert not [f for f in diagnose(name)[0] if f.name in ORDER]


@pytest.mark.parametrize("name", UNSURE)
def test_kernels_of_unknown_dependence_never_fail_a_gate(name):
    found = next(f for f in diagnose(name)[0] if f.name == "stream-missing-wait")
    assert found.confidence is Confidence.possible
    assert not found.fails(Severity.note)


def test_no_perf_finding_on_clean_overlap():
    assert [f.name for f in diagnose("nsys/clean_overlap")[0] if f.severity >= Severity.perf] == []


def test_the_line_comes_with_the_cost():
    found = next(f for f in diagnose("kineto/item_each_step")[0] if f.name == "sync-in-hot-loop")
    assert found.location is not None
    assert found.location.path == "torch_planted.py"
    assert found.values["cost_per"] == "step"
    assert found.cost_ns == pytest.approx(31_190, rel=0.01)


def test_item_costs_what_its_copy_waited():
    found = next(f for f in diagnose("nsys/d2h_item_each_step")[0] if f.name == "sync-in-hot-loop")
    assert found.cost_ns == pytest.approx((7_362_081 + 55_775) / 20, rel=0.01)


def test_pageable_copies_state_their_bytes():
    found = next(f for f in diagnose("nsys/pageable_h2d")[0] if f.name == "h2d-pageable")
    assert (found.values["bytes"], found.values["total"]) == (8_388_608, 167_772_160)
    assert found.values["gpu_ns"] == pytest.approx(11_079_137, rel=0.01)
    assert found.values["host_ns"] == pytest.approx(17_707_653, rel=0.01)


def test_the_straggler_is_the_rank_that_waits_least():
    found = next(f for f in diagnose("kineto/ddp_gloo_2rank.rank0", "kineto/ddp_gloo_2rank.rank1")[0] if f.name == "straggler-rank")
    assert found.ranks == [1]
    assert found.cost_ns == pytest.approx(5_000_000, rel=0.2)


def test_graph_replays_without_rows_are_no_answer():
    findings, abstained = diagnose("nsys/cuda_graph_replay")
    assert {"cuda-graph-untraced", "launch-bound", "gpu-idle-gap", "exposed-communication"} <= {a.name for a in abstained}
    assert not [f for f in findings if f.severity >= Severity.perf]


def test_pytorchs_own_waits_are_not_the_users():
    findings, _ = diagnose("kineto/ddp_gloo_2rank.rank0")
    assert "sync-in-hot-loop" not in {f.name for f in findings}
