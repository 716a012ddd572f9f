"""Event files are read back by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpudoctor.report.tensorboard import write_events
from gpudoctor.timeline.store import Store

pytest.importorskip("tensorboard")


def store(scale: float = 1.0) -> Store:
    s = Store()
    ranks = (0, 1)
    s.add_rows("param", [{"rank": r, "param_id": 0, "name": "head.weight"} for r in ranks])
    s.add_rows("step", [{"rank": r, "step": n, "start": n * 10**9, "end": n * 10**9 + 5 * 10**6, "data_ns": 10**6, "lr": 0.1, "source": "probe"} for r in ranks for n in range(3)])
    s.add_rows("grad_stat", [{"rank": r, "step": n, "param_id": 0, "stage": t, "norm": scale * (n + 1.0)} for r in ranks for n in range(3) for t in ("local", "reduced")])
    s.add_rows("grad_hist", [{"rank": r, "step": 1, "param_id": 0, "stage": "local", "bin": b, "count": c} for r in ranks for b, c in ((-6, 3), (-4, 10))])
    return s


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder))
    reader.Reload()
    return reader


def test_ranks_and_phases_side_by_side(tmp_path: Path) -> None:
    made = write_events(store(), tmp_path / "single")
    assert {p.name for p in made} == {"rank0", "rank1", "rank0.local", "rank0.reduced", "rank1.local", "rank1.reduced"}
    write_events(store(2.0), tmp_path / "dual")
    one, two = read(tmp_path / "single" / "rank0.reduced"), read(tmp_path / "dual" / "rank0.reduced")
    assert [e.value for e in one.Scalars("gradient_norm/head.weight")] == [1.0, 2.0, 3.0]
    assert [e.value for e in two.Scalars("gradient/norm")] == [2.0, 4.0, 6.0]
    assert [e.step for e in one.Scalars("gradient/norm")] == [0, 1, 2]
    steps = read(tmp_path / "single" / "rank1")
    assert [round(e.value, 6) for e in steps.Scalars("step/duration_ms")] == [5.0, 5.0, 5.0]
    assert steps.Scalars("step/duration_ms")[2].wall_time == pytest.approx(2.005)


def test_histograms_keep_counts_and_edges(tmp_path: Path) -> None:
    write_events(store(), tmp_path)
    event, = read(tmp_path / "rank1.local").Histograms("gradient_log2/head.weight")
    assert event.step == 1
    assert event.histogram_value.num == 13
    assert list(event.histogram_value.bucket_limit) == [-5.0, -4.0, -3.0]
    assert list(event.histogram_value.bucket) == [3.0, 0.0, 10.0]


def test_nothing_to_write(tmp_path: Path) -> None:
    assert write_events(Store(), tmp_path / "none") == []
    assert not (tmp_path / "none").exists()
