"""Every count and time that expected.toml gives for a planted capture, from the derived tables."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.timeline.planted import read, truths

NSYS = {f["file"].removesuffix(".sqlite.gz"): f["queried"] for f in truths("nsys")}
KINETO = {f["file"].removesuffix(".json.gz"): f["queried"] for f in truths("kineto")}
NSYS_2025 = ("clean_overlap", "oversync_stream", "pageable_h2d", "unsynced_comm", "wrong_order")
DECISIVE = ("steps", "kernels_in_steps", "api_in_steps", "memcpy_in_steps", "sync_calls_in_steps", "comm_kernels", "comm_not_ordered_after_producer", "opt_not_ordered_after_its_comm")
FLAGS = {"1": "blocking", "2": "nonblocking", "3": "default"}


def one(store, sql):
    return next(iter(store.query(sql)[0].values()))


def measured(store) -> dict:
    """What the tables say, under the names of expected.toml."""
    total = store.query('SELECT coalesce(sum(span), 0)::BIGINT AS span, coalesce(sum(idle), 0)::BIGINT AS idle, coalesce(sum(gaps), 0)::BIGINT AS gaps, '
                        "coalesce(sum(comm), 0)::BIGINT AS comm, coalesce(sum(hidden), 0)::BIGINT AS hidden, coalesce(sum(exposed), 0)::BIGINT AS exposed FROM step_time")[0]
    order = {r["relation"]: r for r in store.query(
        "SELECT relation, count(*) FILTER (reason = 'none') AS loose, count(*) FILTER (start < producer_end) AS early FROM stream_order WHERE step IS NOT NULL GROUP BY relation")}
    none = {"loose": 0, "early": 0}
    calls = store.query("SELECT n.text, count(*) AS n FROM api a JOIN name n USING (name_id) ASOF JOIN step_span s ON a.rank = s.rank AND a.start >= s.start WHERE s.step IS NOT NULL GROUP BY n.text")
    return {
        "steps": one(store, "SELECT count(*) FROM step"),
        "kernels_in_steps": {r["text"]: r["n"] for r in store.query("SELECT n.text, count(*) AS n FROM op JOIN name n USING (name_id) WHERE kind IN ('kernel', 'comm') AND step IS NOT NULL GROUP BY n.text")},
        "kernel_streams_in_steps": one(store, "SELECT count(DISTINCT stream) FROM op WHERE kind IN ('kernel', 'comm') AND step IS NOT NULL"),
        "api_in_steps": {re.sub(r"_v\d+$", "", r["text"]): r["n"] for r in calls},
        "memcpy_in_steps": Counter({(r["copy_kind"], r["src_mem"], r["dst_mem"], r["bytes"]): r["n"] for r in store.query(
            "SELECT copy_kind, src_mem, dst_mem, bytes, count(*) AS n FROM op WHERE kind = 'memcpy' AND step IS NOT NULL GROUP BY ALL")}),
        "sync_calls_in_steps": one(store, "SELECT coalesce(sum(count), 0) FROM host_wait WHERE step IS NOT NULL"),
        "sync_ns_in_steps": one(store, "SELECT coalesce(sum(ns), 0) FROM host_wait WHERE step IS NOT NULL AND kind <> 'copy'"),
        "gpu_span_ns": total["span"], "gpu_idle_ns": total["idle"], "gpu_gaps": total["gaps"],
        "gpu_gaps_over_5ms": one(store, 'SELECT count(*) FROM idle WHERE "end" - start > 5000000'),
        "comm_ns": total["comm"], "comm_hidden_ns": total["hidden"], "comm_exposed_ns": total["exposed"],
        "comm_kernels": one(store, "SELECT count(*) FROM op WHERE kind = 'comm' AND step IS NOT NULL"),
        "comm_not_ordered_after_producer": order.get("comm_after_producer", none)["loose"],
        "comm_started_before_producer_end": order.get("comm_after_producer", none)["early"],
        "opt_not_ordered_after_its_comm": order.get("optimizer_after_comm", none)["loose"],
        "opt_started_before_its_comm_end": order.get("optimizer_after_comm", none)["early"],
        "streams_by_flag": {r["flags"]: r["n"] for r in store.query("SELECT flags, count(*) AS n FROM stream GROUP BY flags")},
    }


def expected(raw: dict) -> dict:
    kinds = {1: "h2d", 2: "d2h", 8: "d2d"}
    memories = {0: "pageable", 1: "pinned", 2: "device"}
    out = dict(raw)
    out["memcpy_in_steps"] = Counter({(kinds[m["copyKind"]], memories[m["srcKind"]], memories[m["dstKind"]], m["bytes"]): m["count"] for m in raw.get("memcpy_in_steps", [])})
    out["streams_by_flag"] = {FLAGS[k]: n for k, n in raw["streams_by_flag"].items()}
    out.setdefault("kernels_in_steps", {})
    return {k: v for k, v in out.items() if k not in ("nvtx", "sync_rows_by_api_and_syncType", "mem_events_in_steps")}


@pytest.mark.parametrize("name", NSYS)
def test_nsys_counts_are_equal_and_times_too(name):
    seen = measured(read(f"nsys/{name}").store)
    for key, value in expected(NSYS[name]).items():
        assert seen[key] == (pytest.approx(value, rel=0.01) if key.endswith("_ns") else value), key


@pytest.mark.parametrize("name", NSYS_2025)
def test_a_newer_nsys_gives_the_same_counts(name):
    seen, truth = measured(read(f"nsys2025/{name}").store), expected(NSYS[name])
    for key in DECISIVE:
        assert seen[key] == truth.get(key, 0), key


@pytest.mark.parametrize("name", KINETO)
def test_kineto_counts_are_equal_and_times_too(name):
    store, truth = read(f"kineto/{name}").store, KINETO[name]
    assert one(store, "SELECT count(*) FROM step WHERE source = 'profiler'") == truth["profiler_steps"]
    assert one(store, "SELECT count(*) FROM op WHERE kind = 'kernel' AND step IS NOT NULL") == truth["kernels_in_steps"]
    assert one(store, "SELECT count(*) FROM op WHERE kind = 'comm'") == truth["nccl_kernels"]
    assert one(store, "SELECT count(DISTINCT stream) FROM op WHERE kind = 'kernel' AND step IS NOT NULL") == truth["kernel_streams"]
    copies = store.query("SELECT n.text, bytes, count(*) AS n FROM op JOIN name n USING (name_id) WHERE kind = 'memcpy' AND step IS NOT NULL GROUP BY ALL")
    assert {f"{r['text']}|{r['bytes']}B": r["n"] for r in copies} == truth["memcpy_in_steps"]
    total = store.query("SELECT sum(span)::BIGINT AS span, sum(idle)::BIGINT AS idle FROM step_time")[0]
    assert total["span"] / 1000 == pytest.approx(truth["gpu_span_us"], rel=0.01)
    if name != "missing_wait_stream":  # there kernels launched before the recording fill the first gap; the truth counts launched ones only
        assert total["idle"] / 1000 == pytest.approx(truth["gpu_idle_us"], rel=0.01)
    calls = store.query("SELECT n.text, count(*) AS n FROM api a JOIN name n USING (name_id) ASOF JOIN step_span s ON a.rank = s.rank AND a.start >= s.start WHERE s.step IS NOT NULL GROUP BY n.text")
    seen = {r["text"]: r["n"] for r in calls}
    assert {k: seen.get(k, 0) for k in truth["api_in_steps"]} == truth["api_in_steps"]
    annotations = store.query("SELECT n.text, count(*) AS n FROM nvtx JOIN name n USING (name_id) WHERE n.text LIKE 'gloo:%' GROUP BY n.text")
    assert {r["text"]: r["n"] for r in annotations} == truth["comm_annotations"]
    assert one(store, "SELECT count(*) FROM cpu_op JOIN name n USING (name_id) WHERE n.text = 'aten::item'") == truth["item_ops"]
