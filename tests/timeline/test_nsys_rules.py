"""nsys's own rule scripts, written again over the raw export, beside what we say of the same file."""

from __future__ import annotations

import gzip
import sqlite3

import pytest

from tests.timeline.planted import FOLDER, diagnose, read

FILES = ("pageable_h2d", "pinned_h2d", "d2h_item_each_step", "oversync_stream", "oversync_device", "idle_gap_dataloader", "clean_overlap", "host_sync_order_clean")


@pytest.fixture(params=FILES)
def name(request):
    return request.param


@pytest.fixture
def raw(name, tmp_path):
    path = tmp_path / "raw.sqlite"
    path.write_bytes(gzip.decompress((FOLDER / "nsys" / f"{name}.sqlite.gz").read_bytes()))
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def value(connection, sql):
    return connection.execute(sql).fetchone()[0]


def test_pageable_asynchronous_copies(name, raw):
    """nsys cuda_memcpy_async: asynchronous copies that read or write pageable memory, of any size."""
    theirs = value(raw, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY m JOIN CUPTI_ACTIVITY_KIND_RUNTIME r USING (correlationId) JOIN StringIds s ON s.id = r.nameId "
                        "WHERE s.value LIKE 'cudaMemcpyAsync%' AND (m.srcKind = 0 OR m.dstKind = 0)")
    ours = read(f"nsys/{name}").store.query("SELECT count(*) AS n FROM op JOIN host_call h ON h.rank = op.rank AND h.corr = op.corr "
                                            "WHERE h.kind = 'memcpy_async' AND 'pageable' IN (op.src_mem, op.dst_mem)")[0]["n"]
    assert ours == theirs
    uploads = value(raw, "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1 AND srcKind = 0 AND bytes > 65536")
    said = sum(f.count for f in diagnose(f"nsys/{name}")[0] if f.name == "h2d-pageable")
    assert said == uploads


def test_blocking_calls(name, raw):
    """nsys cuda_api_sync: cudaDeviceSynchronize, cudaStreamSynchronize and their like; it leaves event waits out."""
    theirs = raw.execute("SELECT count(*), coalesce(sum(r.end - r.start), 0) FROM CUPTI_ACTIVITY_KIND_RUNTIME r JOIN StringIds s ON s.id = r.nameId "
                         "WHERE s.value LIKE 'cudaDeviceSynchronize%' OR s.value LIKE 'cudaStreamSynchronize%'").fetchone()
    ours = read(f"nsys/{name}").store.query("SELECT count(*) AS n, coalesce(sum(ns), 0)::BIGINT AS ns FROM host_wait WHERE kind IN ('stream_sync', 'device_sync')")[0]
    assert (ours["n"], ours["ns"]) == tuple(theirs)


def test_gaps(name, raw):
    """nsys gpu_gaps: times without work on a device longer than a threshold, here 5 ms."""
    work = sorted(raw.execute(" UNION ALL ".join(f"SELECT start, end FROM CUPTI_ACTIVITY_KIND_{t}" for t in ("KERNEL", "MEMCPY", "MEMSET"))).fetchall())
    first = value(raw, "SELECT min(n.start) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE coalesce(n.text, s.value) = 'step'")
    last = value(raw, "SELECT max(n.end) FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE coalesce(n.text, s.value) = 'step'")
    gaps, reach = [], None
    for start, end in work:
        if reach is not None and start - reach > 5_000_000 and reach > first and reach < last:
            gaps.append((reach, start))
        reach = end if reach is None else max(reach, end)
    ours = read(f"nsys/{name}").store.query('SELECT start, "end" FROM idle WHERE "end" - start > 5000000 ORDER BY start')
    assert [(r["start"], r["end"]) for r in ours] == gaps
