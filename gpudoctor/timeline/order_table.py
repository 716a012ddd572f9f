"""The table `stream_order`: cross-stream pairs of work, what orders them, and the verdict on those that depend on each other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gpudoctor.timeline.clocks import Ints, Mask
from gpudoctor.timeline.order import Process, read_process
from gpudoctor.timeline.order_pairs import REASONS, Classes, Pairs, classify, dependences, neighbours, reasons
from gpudoctor.timeline.store import Store

_CREATE = """
CREATE OR REPLACE TABLE stream_order (
    rank BIGINT, device BIGINT, relation VARCHAR, step BIGINT, producer_stream BIGINT, stream BIGINT, producer_corr BIGINT, corr BIGINT,
    producer_end BIGINT, start BIGINT, launch BIGINT, name_id BIGINT, producer_name_id BIGINT, reason VARCHAR, verdict VARCHAR,
    confidence VARCHAR, early_ns BIGINT)
"""
_REDUCTIONS = "('all_reduce', 'reduce_scatter', 'reduce')"


def order_streams(store: Store) -> None:
    """Fill `stream_order` and `order_gap` (ranks whose order the capture cannot tell, and why)."""
    connection = store.connection
    connection.execute(_CREATE)
    connection.execute("CREATE OR REPLACE TABLE order_gap (rank BIGINT, reason VARCHAR)")
    reductions = _ids(store, f"SELECT name_id AS id FROM kind_of_name WHERE op IN {_REDUCTIONS} ORDER BY 1")
    optimizers = _ids(store, "SELECT name_id AS id FROM kind_of_name WHERE optimizer ORDER BY 1")
    stepped = {r["rank"] for r in store.query("SELECT DISTINCT rank FROM step_span")}
    for row in store.query("SELECT rank, count(DISTINCT (device, context, stream)) AS streams, count(launch) AS launched, count(*) AS ops FROM op GROUP BY rank ORDER BY rank"):
        rank = row["rank"]
        if row["streams"] < 2:
            continue
        if gap := _gap(store, rank, row["launched"], row["ops"]):
            connection.execute("INSERT INTO order_gap VALUES (?, ?)", [rank, gap])
        elif (process := read_process(store, rank)) is not None:
            classes = classify(process, reductions, optimizers, _in_optimizer(store, process), rank in stepped)
            for pairs in (neighbours(process), *dependences(process, classes)):
                _insert(store, process, pairs, classes)


def _ids(store: Store, sql: str) -> Ints:
    return np.array([r["id"] for r in store.query(sql)], dtype=np.int64)


def _gap(store: Store, rank: int, launched: int, ops: int) -> str:
    if launched < 0.5 * ops:
        return "the calls that launched the work were not recorded"
    waits = store.query("SELECT (SELECT count(*) FROM host_call WHERE rank = $rank AND kind = 'stream_wait') AS called, "
                        "(SELECT count(*) FROM sync WHERE rank = $rank AND kind = 'stream_wait_event') AS seen", {"rank": rank})[0]
    if waits["called"] and "event_record" not in store.captured:
        return "the events that streams wait for were not recorded"
    if waits["called"] > waits["seen"]:
        return "stream waits were called but not recorded"
    return ""


def _in_optimizer(store: Store, process: Process) -> Mask:
    """Operations launched by a thread while it was inside a range or operator that is named like an optimizer."""
    inside = np.zeros(len(process.ops.launch), dtype=bool)
    spans = store.query(
        "SELECT v.tid, v.start, v.\"end\" FROM (SELECT rank, tid, start, \"end\", name_id FROM nvtx UNION ALL SELECT rank, tid, start, \"end\", name_id FROM cpu_op) v "
        "JOIN kind_of_name k USING (name_id) WHERE k.optimizer AND v.rank = $rank AND v.\"end\" IS NOT NULL ORDER BY ALL", {"rank": process.rank})
    tid, launch = process.ops.columns["tid"], process.ops.launch
    for span in spans:
        low, high = np.searchsorted(launch, [span["start"], span["end"]])
        inside[low:high] |= tid[low:high] == span["tid"]
    return inside


def _insert(store: Store, process: Process, pairs: Pairs, classes: Classes) -> None:
    if not len(pairs.consumer):
        return
    ops, c, p = process.ops, pairs.consumer, pairs.producer
    stream = np.array([s for _, _, s in process.streams], dtype=np.int64)
    why = np.array(REASONS)[reasons(process, c, p)]
    step = classes.step[c]
    early = np.where(pairs.verdict == "ordered", 0, np.maximum(ops.end[p] - ops.start[c], 0))
    store.add("stream_order", pa.table({
        "rank": pa.array(np.full(len(c), process.rank)), "device": ops.columns["device"][c], "relation": pa.array([pairs.relation] * len(c)),
        "step": pa.array(step, mask=step < 0), "producer_stream": stream[ops.stream[p]], "stream": stream[ops.stream[c]],
        "producer_corr": ops.columns["corr"][p], "corr": ops.columns["corr"][c], "producer_end": ops.end[p], "start": ops.start[c], "launch": ops.launch[c],
        "name_id": ops.columns["name_id"][c], "producer_name_id": ops.columns["name_id"][p], "reason": pa.array(why.tolist()),
        "verdict": pa.array(pairs.verdict.tolist()), "confidence": pa.array(pairs.confidence.tolist()), "early_ns": early,
    }))
