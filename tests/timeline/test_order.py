"""Order between streams, against reachability in the program's own graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.timeline.order import read_process
from gpudoctor.timeline.order_pairs import REASONS, known, reasons
from tests.timeline.program import LEGACY, Program, store_of

STREAMS = (LEGACY, 13, 14, 15)
ACTION = st.one_of(
    st.tuples(st.just("launch"), st.sampled_from(STREAMS)),
    st.tuples(st.just("launch"), st.sampled_from(STREAMS)),
    st.tuples(st.just("record"), st.sampled_from(STREAMS), st.integers(0, 2)),
    st.tuples(st.just("wait"), st.sampled_from(STREAMS), st.integers(0, 2)),
    st.tuples(st.just("sync_event"), st.integers(0, 2)),
    st.tuples(st.just("sync_stream"), st.sampled_from(STREAMS)),
    st.tuples(st.just("sync_device")),
)
FLAGS = st.fixed_dictionaries({LEGACY: st.just("default"), 13: st.sampled_from(["blocking", "nonblocking"]),
                               14: st.sampled_from(["blocking", "nonblocking"]), 15: st.just("nonblocking")})


def play(program: Program, actions: list[tuple]) -> None:
    for event in (0, 1, 2):
        program.record(15, event)
    for name, *arguments in actions:
        getattr(program, name)(*arguments)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(FLAGS, st.lists(ACTION, min_size=4, max_size=24)), min_size=8, max_size=20))
def test_clocks_agree_with_reachability(drawn):
    programs = [Program(flags, rank) for rank, (flags, _) in enumerate(drawn)]
    for program, (_, actions) in zip(programs, drawn, strict=True):
        play(program, actions)
    store = store_of(programs)
    for program in programs:
        process = read_process(store, program.rank)
        if process is not None:
            compare(program, process)


def compare(program, process):
    position = {int(c): i for i, c in enumerate(process.ops.columns["corr"])}
    at = np.array([position[corr] for _, corr, _ in program.ops])
    for b in range(len(at)):
        for a in range(b):
            waiting, other = int(process.ops.stream[at[b]]), int(process.ops.stream[at[a]])
            if waiting == other:
                continue
            seen = known(process, waiting, other, process.ops.launch[at[b:b + 1]])[0] > process.ops.seq[at[a]]
            assert seen == program.ordered(a, b), (program.flags, program.ops, a, b)
            assert (reasons(process, at[b:b + 1], at[a:a + 1])[0] != REASONS.index("none")) == program.ordered(a, b)


def pairs(program: Program, relation: str) -> list[tuple[str, str]]:
    rows = program.store().query("SELECT verdict, reason FROM stream_order WHERE relation = $r ORDER BY launch", {"r": relation})
    return [(r["verdict"], r["reason"]) for r in rows]


def ddp(before_comm, before_optimizer, flags=None, steps=4) -> Program:
    """The planted program's step: two buckets on stream 14, compute on 13 (or the legacy stream)."""
    compute = LEGACY if flags else 13
    program = Program(flags or {13: "nonblocking", 14: "nonblocking", 15: "nonblocking"})
    for _ in range(steps):
        program.step()
        program.launch(compute, "fwd_gemm")
        for bucket in (0, 1):
            program.launch(compute, "bwd_gemm")
            program.launch(compute, "bwd_gemm")
            before_comm(program, compute, bucket)
            program.launch(14, "ncclDevKernel_AllReduce_Sum", "comm")
            program.record(14, 20 + bucket)
        program.launch(compute, "bwd_gemm")
        before_optimizer(program, compute)
        program.launch(compute, "optimizer_adam")
        program.launch(compute, "optimizer_adam")
    return program


def nothing(*_):
    """No order at all."""


def event(program, compute, bucket):
    program.record(compute, bucket)
    program.wait(14, bucket)


def transitive(program, compute, bucket):
    program.record(compute, bucket)
    program.wait(15, bucket)
    program.record(15, 9)
    program.wait(14, 9)


def host(program, compute, bucket):
    program.record(compute, bucket)
    program.sync_event(bucket)


def join(program, compute):
    program.wait(compute, 20)
    program.wait(compute, 21)


@pytest.mark.parametrize(("how", "reason"), [(event, "event"), (transitive, "transitive"), (host, "host_sync")])
def test_ordered_collectives(how, reason):
    program = ddp(how, join)
    assert pairs(program, "comm_after_producer") == [("ordered", reason)] * 8
    assert pairs(program, "optimizer_after_comm") == [("ordered", "event")] * 8


def test_collectives_that_wait_for_nothing():
    program = ddp(nothing, join)
    assert pairs(program, "comm_after_producer") == [("missing", "none")] * 8
    rows = program.store().query("SELECT DISTINCT confidence FROM stream_order WHERE verdict = 'missing'")
    assert [r["confidence"] for r in rows] == ["certain"]


def test_optimizer_that_does_not_wait():
    program = ddp(event, nothing)
    assert pairs(program, "comm_after_producer") == [("ordered", "event")] * 8
    assert pairs(program, "optimizer_after_comm") == [("missing", "none")] * 8


def test_record_before_the_producer():
    program = Program({13: "nonblocking", 14: "nonblocking"})
    for _ in range(4):
        program.step()
        program.launch(13, "bwd_gemm")
        program.record(13, 1)
        program.launch(13, "bwd_gemm")
        program.wait(14, 1)
        program.launch(14, "ncclDevKernel_AllReduce_Sum", "comm")
    assert pairs(program, "comm_after_producer") == [("wrong_order", "none")] * 4


def test_wait_before_the_record():
    program = Program({13: "nonblocking", 14: "nonblocking"})
    for _ in range(4):
        program.step()
        program.wait(14, 1)
        program.launch(13, "bwd_gemm")
        program.record(13, 1)
        program.launch(14, "ncclDevKernel_AllReduce_Sum", "comm")
    assert [v for v, _ in pairs(program, "comm_after_producer")[1:]] == ["wrong_order"] * 3


@pytest.mark.parametrize(("flag", "verdict", "reason"), [("blocking", "ordered", "legacy_stream"), ("nonblocking", "missing", "none")])
def test_the_stream_flag_decides(flag, verdict, reason):
    program = ddp(nothing, nothing, {LEGACY: "default", 14: flag})
    assert pairs(program, "comm_after_producer") == [(verdict, reason)] * 8
    assert pairs(program, "optimizer_after_comm") == [(verdict, reason)] * 8


def test_unknown_flags_are_not_certain():
    program = ddp(nothing, nothing, {LEGACY: "default", 14: "unknown"})
    rows = program.store().query("SELECT DISTINCT confidence FROM stream_order WHERE verdict = 'missing' ORDER BY 1")
    assert [r["confidence"] for r in rows] == ["likely"]


def test_a_query_counts_only_if_the_event_was_done():
    for late, verdict in ((0, "missing"), (100_000, "ordered")):
        program = Program({13: "nonblocking", 14: "nonblocking"})
        for _ in range(4):
            program.step()
            program.launch(13, "bwd_gemm", duration=50_000)
            program.record(13, 1)
            program.time += late
            start, corr = program.call("cudaEventQuery")
            program.rows["sync"].append({"rank": 0, "kind": "event_query", "context": 1, "event": 1, "start": start, "end": start + 10, "corr": corr})
            program.launch(14, "ncclDevKernel_AllReduce_Sum", "comm")
        assert {v for v, _ in pairs(program, "comm_after_producer")} == {verdict}


def test_waits_whose_record_is_unknown_are_believed():
    program = ddp(event, join)
    program.rows["event_record"].clear()
    program.rows["event_record"].append({"rank": 0, "context": 1, "event": 99, "stream": 13, "start": 1})
    assert {v for v, _ in pairs(program, "comm_after_producer")} == {"ordered"}


def test_uploads_that_nobody_waits_for():
    program = Program({13: "nonblocking", 16: "nonblocking"})
    for _ in range(8):
        program.step()
        program.launch(16, "Memcpy", "memcpy", copy_kind="h2d", src_mem="pinned", dst_mem="device", bytes=1 << 20)
        program.launch(13, "fwd_gemm")
    assert {v for v, _ in pairs(program, "consumer_after_copy")} == {"missing"}
    clean = Program({13: "nonblocking", 16: "nonblocking"})
    for _ in range(8):
        clean.step()
        clean.record(16, 1)
        clean.wait(13, 1)
        clean.launch(16, "Memcpy", "memcpy", copy_kind="h2d", src_mem="pinned", dst_mem="device", bytes=1 << 20)
        clean.launch(13, "fwd_gemm")
    assert pairs(clean, "consumer_after_copy") == []


def test_a_join_without_its_fork_is_possible_only():
    program = Program({13: "nonblocking", 16: "nonblocking"})
    for _ in range(4):
        program.step()
        program.launch(13, "produce", duration=5000)
        program.launch(13, "produce", duration=5000)
        program.launch(16, "consume")
        program.record(16, 1)
        program.wait(13, 1)
        program.launch(13, "use")
    rows = program.store().query("SELECT verdict, confidence, count(*) AS n FROM stream_order WHERE relation = 'side_after_main' GROUP BY ALL")
    assert rows == [{"verdict": "missing", "confidence": "possible", "n": 4}]
