"""Kinds of fault that no planted file holds, from the tiny program."""

from __future__ import annotations

import pytest

from gpudoctor.model import Severity
from gpudoctor.report.build import steps_by_rank
from gpudoctor.rulebook.detect import detect_in_tables
from gpudoctor.rulebook.group import findings_from
from gpudoctor.rulebook.load import load_rules
from tests.timeline.program import LEGACY, Program, store_of

PLAIN = {13: "nonblocking", 14: "nonblocking", 15: "nonblocking"}
STEPS = 8


@pytest.fixture(scope="module")
def book():
    return load_rules()


def findings(book, *programs):
    store = store_of(list(programs))
    seen = detect_in_tables(book, store, ["trace"])
    return {f.name: f for f in findings_from(seen.evidence, *steps_by_rank(store)) if f.severity >= Severity.perf}


def train(body, flags=None, ordered=True, comm=200, compute=13, rank=0):
    """Steps of forward, two backward kernels, an all-reduce beside a third, an optimizer; `body(program, compute)` ends each."""
    program = Program(flags or PLAIN, rank)
    for _ in range(STEPS):
        program.step()
        program.launch(compute, "fwd_gemm", duration=2000)
        program.launch(compute, "bwd_gemm", duration=2000)
        if ordered:
            program.record(compute, 1)
            program.wait(14, 1)
        program.launch(14, "ncclDevKernel_AllReduce_Sum_f32", "comm", duration=comm)
        program.record(14, 2)
        program.launch(compute, "bwd_gemm", duration=2000)
        if ordered:
            program.wait(compute, 2)
        program.launch(compute, "optimizer_adam", duration=1000)
        body(program, compute)
    return program


def nothing(*_):
    """A clean step."""


def blocking_copy(program, compute):
    item = program.last[compute]
    _, corr = program.call("cudaMemcpy", max(20, program.end[item] - program.time + 50))
    program.rows["gpu_op"].append({"rank": program.rank, "device": 0, "context": 1, "stream": LEGACY, "kind": "memcpy", "copy_kind": "d2h", "src_mem": "device",
                                   "dst_mem": "pageable", "name_id": program.name("Memcpy DtoH"), "bytes": 4, "start": program.time - 20, "end": program.time - 10, "corr": corr})


def spin(program, compute):
    program.record(compute, 3)
    until = program.end[program.last[compute]]
    while program.time < until or program.time < 100:
        program.call("cudaEventQuery")
        program.time += 90


def allocator_queries(program, compute):
    for _ in range(12):
        program.call("cudaEventQuery")
        program.launch(compute, "elementwise", duration=20)


def test_a_clean_step_has_no_finding(book):
    assert findings(book, train(nothing)) == {}


def test_blocking_copies(book):
    found = findings(book, train(blocking_copy))["memcpy-sync"]
    assert (found.count, found.values["bytes"], found.values["direction"]) == (STEPS, 4, "d2h")


def test_blocking_memset(book):
    assert findings(book, train(lambda p, _: p.call("cudaMemset", 5000)))["memset-sync"].count == STEPS


def test_spinning_queries_are_synchronisation(book):
    found = findings(book, train(spin))["sync-in-hot-loop"]
    assert found.values["calls"] == "cudaEventQuery"
    assert found.cost_ns > 1000


def test_the_allocators_queries_are_not(book):
    assert "sync-in-hot-loop" not in findings(book, train(allocator_queries))


def test_the_pool_is_cheap(book):
    found = findings(book, train(lambda p, _: (p.call("cudaMallocAsync"), p.call("cudaFreeAsync"))))
    assert "alloc-in-loop" not in found


def test_streams_from_a_pool_in_warm_up(book):
    program = train(nothing)
    assert "stream-created-in-loop" not in findings(book, program)
    assert findings(book, train(lambda p, _: p.call("cudaStreamCreateWithFlags")))["stream-created-in-loop"].count == STEPS


def test_an_optimizer_that_does_not_wait(book):
    program = Program(PLAIN)
    for _ in range(STEPS):
        program.step()
        program.launch(13, "bwd_gemm", duration=2000)
        program.record(13, 1)
        program.wait(14, 1)
        program.launch(14, "ncclDevKernel_AllReduce_Sum_f32", "comm", duration=500)
        program.launch(13, "optimizer_adam", duration=1000)
    found = findings(book, program)["stream-missing-wait"]
    assert found.count == STEPS
    assert "optimizer kernels" in found.message


@pytest.mark.parametrize(("flag", "fault"), [("nonblocking", True), ("blocking", False)])
def test_the_legacy_stream_and_its_twin(book, flag, fault):
    found = findings(book, train(nothing, {LEGACY: "default", 14: flag}, ordered=False, compute=LEGACY))
    assert ("stream-missing-wait" in found) is fault


def test_exposed_communication_is_told_and_hidden_is_not(book):
    found = findings(book, train(nothing, comm=9000))
    assert found["exposed-communication"].values["share"] > 0.3
    assert "comm-bound" in found


def test_the_late_rank_is_named_of_four(book):
    programs = [train(nothing, rank=r, comm=200 if r == 2 else 4000) for r in range(4)]
    found = findings(book, *programs)["straggler-rank"]
    assert found.ranks == [2]


def test_ranks_with_unlike_sequences_give_no_straggler(book):
    other = train(lambda p, c: p.launch(14, "ncclDevKernel_Broadcast", "comm"), rank=1, comm=4000)
    assert "straggler-rank" not in findings(book, train(nothing, rank=0), other)


def test_costs_are_per_step_of_their_rank(book):
    def body(program, compute):
        program.sync_stream(compute)

    found = findings(book, train(body, rank=0), train(body, rank=1))["sync-in-hot-loop"]
    assert found.ranks == [0, 1]
    assert found.count == 2 * STEPS
    assert found.values["cost_per"] == "step"
