"""Kineto traces → canonical tables."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.errors import InputError
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest, unpack

DATA = Path(__file__).parents[1] / "data" / "captures"


def read(*paths: Path) -> Ingested:
    return ingest(list(paths), IngestOptions(cache=False, debug=True))


def trace(folder: Path, events: list[dict[str, Any]], name: str = "t.json", **about: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, **about, "traceEvents": events}), "utf-8")
    return path


def kernel(ts: float, dur: float = 1, name: str = "gemm", corr: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": {"device": 0, "context": 1, "stream": 7, "correlation": corr, **args}}


def call(ts: float, dur: float, name: str, corr: int, tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {"correlation": corr}}


def test_times_are_exact_to_the_nanosecond(tmp_path: Path) -> None:
    small = read(trace(tmp_path, [kernel(5340808844868.734, 2.144)], "a.json"))
    assert small.store.query('SELECT start, "end" FROM gpu_op') == [{"start": 5340808844868734, "end": 5340808844870878}]
    path = tmp_path / "b.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1669783687389292.123, "dur": 0.001, "args": {}}]}')
    assert read(path).store.query('SELECT start, "end" FROM gpu_op') == [{"start": 1669783687389292123, "end": 1669783687389292124}]


def test_old_category_names_and_stream_tids(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 10, "dur": 5, "args": {"device": 0, "context": 1, "stream": 7, "correlation": 3, "external id": 9}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": "25738", "ts": 1, "dur": 2, "args": {"correlation": 3, "external id": 9}},
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 1, "tid": "25738", "ts": 0, "dur": 4, "args": {"External id": 9, "Call stack": "torch/nn/x.py(3): f;train.py(12): step;train.py(40): <module>"}},
        {"ph": "X", "cat": "Operator", "name": "ProfilerStep#5", "pid": 1, "tid": "25738", "ts": 0, "dur": 20},
    ]
    store = read(trace(tmp_path, events)).store
    assert store.query("SELECT kind, stream, corr FROM gpu_op") == [{"kind": "kernel", "stream": 7, "corr": 3}]
    assert store.query("SELECT tid FROM api") == [{"tid": 25738}]
    assert store.query("SELECT n.text FROM nvtx JOIN name n USING (name_id)") == [{"text": "ProfilerStep#5"}]
    assert store.query("SELECT depth, file, line, func FROM pystack ORDER BY depth") == [
        {"depth": 0, "file": "torch/nn/x.py", "line": 3, "func": "f"},
        {"depth": 1, "file": "train.py", "line": 12, "func": "step"},
        {"depth": 2, "file": "train.py", "line": 40, "func": "<module>"},
    ]


def test_sync_kind_comes_from_the_call_and_records_from_the_waits() -> None:
    store = read(DATA / "kineto_missing_wait_stream.json.gz").store
    kinds = {r["kind"]: r["n"] for r in store.query("SELECT kind, count(*) AS n FROM sync GROUP BY kind")}
    assert kinds == {"event_query": 44, "stream_wait_event": 6, "device": 1}
    assert "event_record" in store.captured


def test_a_wait_names_the_record_it_waits_for(tmp_path: Path) -> None:
    wait = {"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "pid": 0, "tid": 24, "ts": 5, "dur": 1, "args": {
        "cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 3, "wait_on_cuda_event_id": 9, "stream": 24, "correlation": 4, "context": 1}}
    store = read(trace(tmp_path, [kernel(10), call(3, 1, "cudaEventRecord", 3), call(4, 1, "cudaStreamWaitEvent", 4), wait])).store
    assert store.query("SELECT kind, stream, event, src_corr FROM sync") == [{"kind": "stream_wait_event", "stream": 24, "event": 9, "src_corr": 3}]
    assert store.query("SELECT stream, event, corr, start FROM event_record") == [{"stream": 20, "event": 9, "corr": 3, "start": 3000}]


def test_python_stack_of_a_call_without_call_stacks() -> None:
    store = read(DATA / "kineto_item_each_step.json.gz").store
    rows = store.query("""SELECT p.depth, p.file, p.func FROM pystack p JOIN api a USING (rank, corr) JOIN name n USING (name_id)
        WHERE n.text = 'cudaStreamSynchronize' AND p.file IS NOT NULL QUALIFY p.depth = min(p.depth) OVER (PARTITION BY corr)""")
    assert rows == [{"depth": 1, "file": "torch_planted.py", "func": "<lambda>"}] * 6


def test_a_frame_that_ended_is_not_around_a_later_call(tmp_path: Path) -> None:
    def frame(name: str, ts: int, dur: int, tid: int = 1) -> dict[str, Any]:
        return {"ph": "X", "cat": "python_function", "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": {}}

    events = [
        frame("a.py(1): main", 0, 100), frame("a.py(5): early", 10, 10), frame("a.py(9): late", 40, 20), frame("b.py(1): other", 0, 100, tid=2),
        call(30, 1, "cudaMalloc", 1), call(45, 1, "cudaFree", 2), kernel(50),
    ]
    store = read(trace(tmp_path, events)).store
    rows = store.query("SELECT corr, depth, line FROM pystack ORDER BY corr, depth")
    assert rows == [{"corr": 1, "depth": 0, "line": 1}, {"corr": 2, "depth": 0, "line": 9}, {"corr": 2, "depth": 1, "line": 1}]


def test_without_sync_rows_streams_have_no_known_order(tmp_path: Path) -> None:
    other = kernel(20, corr=2)
    other["args"]["stream"] = 20
    calls = [call(0, 1, "cudaLaunchKernel", 1), call(1, 1, "cudaEventRecord", 3), call(2, 1, "cudaLaunchKernel", 2), call(3, 50, "cudaDeviceSynchronize", 4)]
    one = read(trace(tmp_path, [kernel(10), *calls], "one.json")).store
    two = read(trace(tmp_path, [kernel(10), other, *calls], "two.json")).store
    assert "event_record" in one.captured
    assert "event_record" not in two.captured
    assert two.query('SELECT kind, stream, "end" - start AS ns FROM sync') == [{"kind": "device", "stream": None, "ns": 50_000}]


@pytest.mark.parametrize(("name", "kind"), [
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "comm"), ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", "comm"),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "comm"), ("void vllm::cross_device_reduce_1stage<float, 2>(vllm::RankData*)", "comm"),
    ("mscclKernel_Sum_half_LL", "comm"), ("void gemm_nccl_like<float>()", "kernel"), ("ampere_sgemm_128x64_tn", "kernel"),
])
def test_kernels_that_communicate(tmp_path: Path, name: str, kind: str) -> None:
    assert read(trace(tmp_path, [kernel(1, name=name)])).store.query("SELECT kind FROM gpu_op") == [{"kind": kind}]


def test_copies_and_collective_sizes(tmp_path: Path) -> None:
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7, "ts": 1, "dur": 1, "args": {"device": 0, "stream": 7, "correlation": 5, "bytes": 4096}}
    comm = kernel(3, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL", corr=6, **{"In msg nelems": 1000, "dtype": "BFloat16"})
    rows = read(trace(tmp_path, [copy, comm])).store.query("SELECT kind, bytes, copy_kind, src_mem, dst_mem FROM gpu_op ORDER BY kind")
    assert rows == [
        {"kind": "comm", "bytes": 2000, "copy_kind": None, "src_mem": None, "dst_mem": None},
        {"kind": "memcpy", "bytes": 4096, "copy_kind": "h2d", "src_mem": "pageable", "dst_mem": "device"},
    ]


def test_the_end_of_the_file_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    events = json.dumps([kernel(1.5), kernel(9.5, corr=2)])
    path.write_text('{"traceEvents": ' + events + ',\n "distributedInfo": {"rank": 3, "world_size": 4, "pg_config": [{"ranks": [0, 1]}]}, "baseTimeNanoseconds": 1700000000000000000}')
    store = read(path).store
    assert store.query("SELECT rank, world_size, epoch_ns FROM capture") == [{"rank": 3, "world_size": 4, "epoch_ns": 1700000000000000000}]
    assert store.query("SELECT DISTINCT rank FROM gpu_op") == [{"rank": 3}]


def test_events_larger_than_a_chunk_and_odd_boundaries(tmp_path: Path) -> None:
    events = [kernel(i, name="},{ \"]" * 300 if i % 2 else "k", corr=i) for i in range(6000)]
    assert read(trace(tmp_path, events)).store.count("gpu_op") == 6000


def test_fields_of_odd_types_do_not_lose_the_other_events(tmp_path: Path) -> None:
    odd = kernel(5, corr=2)
    odd["args"] |= {"correlation": "nine", "stream": [7], "device": 1.5}
    rows = read(trace(tmp_path, [kernel(1), odd])).store.query("SELECT corr, stream FROM gpu_op ORDER BY start")
    assert rows == [{"corr": 1, "stream": 7}, {"corr": None, "stream": None}]


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    path = trace(tmp_path, [kernel(1, name="BROKEN"), kernel(5, corr=2)])
    path.write_bytes(path.read_bytes().replace(b"BROKEN", b"br\xffken"))
    assert read(path).store.count("gpu_op") == 2


def test_rows_that_cannot_be_true_are_dropped_and_counted(tmp_path: Path) -> None:
    events = [kernel(5), kernel(9, dur=-2, corr=2), kernel(-4, corr=3), call(1, 1, "cudaLaunchKernel", 1), call(2, 1e19, "cudaStreamSynchronize", 2)]
    store = read(trace(tmp_path, events)).store
    assert [store.count(t) for t in ("gpu_op", "api", "sync")] == [1, 1, 0]
    assert store.query('SELECT dropped, gpu_ops, api_calls, start, "end" FROM capture') == [{"dropped": 3, "gpu_ops": 1, "api_calls": 1, "start": 1000, "end": 6000}]


@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_trace_is_read_as_far_as_it_goes(tmp_path: Path, packed: bool) -> None:
    raw = gzip.decompress((DATA / "kineto_item_each_step.json.gz").read_bytes())
    raw = gzip.compress(raw)[:60_000] if packed else raw[:500_000]
    path = tmp_path / ("t.json.gz" if packed else "t.json")
    path.write_bytes(raw)
    result = read(path)
    assert result.store.query("SELECT truncated FROM capture") == [{"truncated": True}]
    assert len(result.problems) == 1
    assert result.store.count("cpu_op") > 0


def test_the_standard_library_unpacks_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = DATA / "kineto_item_each_step.json.gz"
    want = gzip.decompress(packed.read_bytes())
    assert b"".join(unpack.chunks(packed)) == want
    monkeypatch.setattr(unpack, "zlib", zlib)
    monkeypatch.setattr(unpack, "_DAMAGED", zlib.error)
    assert b"".join(unpack.chunks(packed)) == want


def test_json_without_events_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"schemaVersion": 1, "traceEvents": 5}')
    with pytest.raises(InputError, match="no list traceEvents"):
        read(path)
