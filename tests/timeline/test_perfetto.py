"""The Chrome trace that Perfetto opens."""

from __future__ import annotations

import io
import json

import pytest

from gpudoctor.model import Report, Subject
from gpudoctor.report.perfetto import render
from tests.timeline.planted import diagnose, read


def trace(name):
    stream = io.StringIO()
    render(Report(Subject("capture", [name]), diagnose(name)[0]), read(name).store, stream)
    return json.loads(stream.getvalue())["traceEvents"]


def tracks(events):
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}


def test_streams_steps_and_findings_are_tracks():
    events = trace("nsys/unsynced_comm")
    names = tracks(events)
    assert {"findings", "steps", "GPU 0 stream 13", "GPU 0 stream 14", "work that started too early"} <= set(names.values())
    by_track = {title: [e for e in events if e["ph"] == "X" and names[e["pid"], e["tid"]] == title] for title in names.values()}
    assert len(by_track["steps"]) == 20
    assert len(by_track["work that started too early"]) == 40
    assert any(e["name"] == "GD101 stream-missing-wait" and "40" in e["args"]["message"] for e in by_track["findings"])
    assert sum(len(v) for k, v in by_track.items() if k.startswith("GPU 0 stream")) == read("nsys/unsynced_comm").store.count("op")


@pytest.mark.parametrize("name", ["kineto/ddp_gloo_2rank.rank1", "nsys/cuda_graph_replay"])
def test_times_are_finite_and_in_order(name):
    slices = [e for e in trace(name) if e["ph"] == "X"]
    assert slices
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in slices)
