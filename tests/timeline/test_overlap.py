"""Interval algebra, against a plain array that marks every nanosecond."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.intervals import covered, runs, sweep
from gpudoctor.timeline.store import Store

END = 120
SPANS = st.lists(st.tuples(st.integers(0, END - 1), st.integers(0, 30), st.integers(0, 2)), max_size=30)


def marked(spans):
    """count[kind, t] of intervals of each kind that cover nanosecond t."""
    count = np.zeros((3, END + 40), dtype=int)
    for start, length, kind in spans:
        count[kind, start:start + length] += 1
    return count


@given(SPANS)
def test_cuts_count_like_marks(spans):
    start = np.array([s for s, _, _ in spans], dtype=np.int64)
    end = start + np.array([n for _, n, _ in spans], dtype=np.int64)
    cuts = sweep(start, end, np.array([k for *_, k in spans], dtype=np.int64), 3)
    truth = marked(spans)
    seen = np.zeros_like(truth)
    for a, b, count in zip(cuts.start, cuts.end, cuts.count.T, strict=True):
        assert b > a
        seen[:, a:b] += count[:, None]
    assert (seen == truth).all()
    assert (cuts.start[1:] == cuts.end[:-1]).all()


@given(SPANS)
def test_runs_merge_what_touches(spans):
    start = np.array([s for s, _, _ in spans], dtype=np.int64)
    end = start + np.array([n for _, n, _ in spans], dtype=np.int64)
    cuts = sweep(start, end, np.array([k for *_, k in spans], dtype=np.int64), 3)
    first, last = runs(cuts.start, cuts.end, cuts.count[0] > 0)
    flat = marked(spans)[0] > 0
    edges = np.flatnonzero(np.diff(np.r_[False, flat, False].astype(int)))
    assert first.tolist() == edges[::2].tolist()
    assert last.tolist() == edges[1::2].tolist()


@given(SPANS)
def test_covered_counts_marked_time(spans):
    start = np.array([s for s, _, _ in spans], dtype=np.int64)
    assert covered(start, start + np.array([n for _, n, _ in spans], dtype=np.int64)) == (marked(spans).sum(axis=0) > 0).sum()


KINDS = ("comm", "kernel", "memcpy")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 80), st.integers(1, 30), st.integers(0, 2)), min_size=1, max_size=12), min_size=1, max_size=4))
def test_step_times_like_marks(steps):
    """Steps follow each other every 200 ns; work of one never reaches the next one's."""
    store = Store()
    store.add_rows("step", [{"rank": 0, "step": i, "start": i * 200, "end": i * 200 + 200, "warmup": False} for i in range(len(steps))])
    rows, calls = [], []
    for i, spans in enumerate(steps):
        for start, length, kind in spans:
            corr = len(rows) + 1
            rows.append({"rank": 0, "device": 0, "stream": kind, "kind": KINDS[kind], "name_id": 0, "start": i * 200 + 50 + start, "end": i * 200 + 50 + start + length, "corr": corr})
            calls.append({"rank": 0, "tid": 1, "name_id": 1, "start": i * 200 + 1, "end": i * 200 + 2, "corr": corr})
    store.add_rows("gpu_op", rows)
    store.add_rows("api", calls)
    store.add_rows("name", [{"name_id": 0, "text": "work"}, {"name_id": 1, "text": "cudaLaunchKernel"}])
    derive(store)
    seen = {r["step"]: r for r in store.query("SELECT * FROM step_time")}
    begins = [min(r["start"] for r in rows if r["start"] // 200 == i) for i in range(len(steps))] + [max(r["end"] for r in rows)]
    line = np.zeros((3, 200 * len(steps) + 200), dtype=int)
    for row in rows:
        line[KINDS.index(row["kind"]), row["start"]:row["end"]] += 1
    for i in range(len(steps)):
        comm, compute, copy = (line[k, begins[i]:begins[i + 1]] > 0 for k in range(3))
        truth = {"span": begins[i + 1] - begins[i], "busy": (comm | compute | copy).sum(), "idle": (~(comm | compute | copy)).sum(), "comm": comm.sum(), "compute": compute.sum(),
                 "hidden": (comm & compute).sum(), "exposed": (comm & ~compute).sum(), "copy_exposed": (copy & ~comm & ~compute).sum(),
                 "concurrent": (line[:, begins[i]:begins[i + 1]].sum(axis=0) > 1).sum()}
        assert {k: seen[i][k] for k in truth} == truth
    store.close()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 7, 30, 50_000])), min_size=1, max_size=8), st.lists(st.integers(0, 60_000), min_size=1, max_size=40, unique=True))
def test_work_finds_its_step_by_plain_comparison(steps, moments):
    """Steps with gaps between them, some thousands of times as long as others."""
    store, spans, t = Store(), [], 10
    for pause, length in steps:
        spans.append((t + pause, t + pause + length))
        t += pause + length
    store.add_rows("step", [{"rank": 0, "step": i, "start": a, "end": b, "warmup": False} for i, (a, b) in enumerate(spans)])
    store.add_rows("name", [{"name_id": 0, "text": "k"}])
    store.add_rows("api", [{"rank": 0, "tid": 1, "name_id": 0, "start": m, "end": m, "corr": i} for i, m in enumerate(moments)])
    store.add_rows("gpu_op", [{"rank": 0, "device": 0, "context": 0, "stream": 7, "kind": "kernel", "name_id": 0, "start": 10**6 + i, "end": 10**6 + i, "corr": i} for i in range(len(moments))])
    derive(store)
    truth = {i: next((n for n, (a, b) in enumerate(spans) if a <= m < b), None) for i, m in enumerate(moments)}
    assert {r["corr"]: r["step"] for r in store.query("SELECT corr, step FROM op")} == truth
