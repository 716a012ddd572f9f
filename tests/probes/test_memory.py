"""The memory probe: on two CPU ranks for real, on cards with the card's numbers made up."""

from __future__ import annotations

import contextlib
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpudoctor.probes import memory as probe_module  # noqa: E402
from gpudoctor.probes import memory_devices  # noqa: E402
from gpudoctor.probes.memory import Memory  # noqa: E402
from tests.probes.ranks import facts, rows, run_ranks  # noqa: E402

TRAIN = """
import torch
net = torch.nn.Linear(8, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    net(torch.randn(4, 8)).square().mean().backward()
    opt.step()
    opt.zero_grad()
"""


def test_both_ranks_of_a_cpu_run_tell_their_memory(tmp_path: Path) -> None:
    records = run_ranks(tmp_path, TRAIN, ranks=2)
    samples = rows(records, "mem_sample")
    assert {r["rank"] for r in samples} == {0, 1}
    assert {r["device"] for r in samples} == {-1}
    assert {r["phase"] for r in samples} == {"step", "end"}
    for row in samples:
        assert 10 << 20 < row["allocated"] <= row["peak_allocated"] < row["total"]
    assert len([r for r in samples if r["rank"] == 0 and r["phase"] == "step"]) == 5
    assert not facts(records, "probe-failed")


class Card:
    """Numbers of two made-up cards."""

    def __init__(self) -> None:
        self.reserved = {0: 0, 1: 8 << 30}
        self.contexts = [1]

    def row(self, device: int, ask_driver: bool = True) -> dict[str, Any]:
        return {"device": device, "allocated": self.reserved[device] // 2, "reserved": self.reserved[device], "retries": 0, "free": 1 << 30, "total": 16 << 30}


class Seen:
    """A session that only listens."""

    def __init__(self, folder: Path) -> None:
        self.rank, self.step, self.sampled = 1, 3, True
        self.settings = SimpleNamespace(folder=folder)
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.facts: list[tuple[Any, ...]] = []
        self.recorder = SimpleNamespace(add=lambda table, row: self.rows.append((table, row)), flush=lambda: None)

    def emit(self, table: str, **columns: Any) -> None:
        self.rows.append((table, columns))

    def fact(self, kind: str, name: str = "", detail: str = "", place: Any = None, value: float | None = None) -> None:
        self.facts.append((kind, name, detail, value))

    @contextlib.contextmanager
    def counted(self) -> Any:
        yield

    def _lost(self, probe: Any, where: str, error: Exception) -> None:
        raise error


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    card = Card()
    for name, value in {
        "is_available": lambda: True, "is_initialized": lambda: True, "device_count": lambda: 2, "current_device": lambda: 1,
        "memory_reserved": lambda d: card.reserved[d], "_lazy_call": lambda call: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "load", lambda *a, **k: card.reserved.__setitem__(0, 2 << 30))
    monkeypatch.setattr(torch.nn.DataParallel, "__init__", torch.nn.DataParallel.__init__)
    monkeypatch.setattr(memory_devices, "device_row", card.row)
    monkeypatch.setattr(memory_devices, "pieces", lambda d: {"largest_free": 5, "in_pieces": 50})
    monkeypatch.setattr(memory_devices, "contexts", lambda: card.contexts)
    monkeypatch.setattr(memory_devices, "processes", lambda: iter([{"device": 0, "pid": 4242, "bytes": 7}]))
    monkeypatch.setattr(memory_devices, "used_by_others", lambda d: 7)
    return card


@pytest.fixture
def probe(card: Card, tmp_path: Path) -> Memory:
    (tmp_path / "capture").mkdir()
    probe = Memory()
    probe.session = Seen(tmp_path)  # type: ignore[assignment]
    probe.start()
    return probe


def test_a_step_on_a_card(probe: Memory, card: Card) -> None:
    probe.on_forward_begin(None, (torch.ones(3, 4),), {})  # type: ignore[arg-type]
    probe.on_forward_end(None, None)  # type: ignore[arg-type]
    probe.on_forward_end(None, None)  # type: ignore[arg-type]
    probe.on_backward_end()
    probe.on_step_end(3)
    samples = [row for table, row in probe.session.rows if table == "mem_sample"]  # type: ignore[attr-defined]
    on_card = [row for row in samples if row["device"] == 1]
    assert [row["phase"] for row in on_card] == ["forward", "backward", "step"]
    assert on_card[-1]["in_pieces"] == 50
    assert on_card[0]["inputs"] == 12
    assert {row["device"] for row in samples} == {-1, 1}


def test_a_context_that_appears_is_told_once(probe: Memory, card: Card) -> None:
    probe.on_step_end(2)
    card.contexts = [0, 1]
    probe.on_step_end(4)
    probe.on_step_end(8)
    assert [f[1] for f in probe.session.facts if f[0] == "cuda-context"] == ["1", "0"]  # type: ignore[attr-defined]
    assert ("device_process", {"step": 2, "owner_rank": None, "device": 0, "pid": 4242, "bytes": 7}) in probe.session.rows  # type: ignore[attr-defined]


def test_a_load_that_lands_on_another_card(probe: Memory, card: Card) -> None:
    torch.load("model.pt")
    assert probe.session.facts == [("load-lands", "0", "1", float(2 << 30))]  # type: ignore[attr-defined]


def test_out_of_memory_leaves_a_snapshot_and_a_row(probe: Memory, card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module.torch.cuda.memory, "_snapshot", lambda device=None: {"segments": [], "device_traces": []})
    probe._out_of_memory(1, 1 << 29, 0, 1 << 20)
    probe._out_of_memory(1, 1 << 30, 0, 1 << 20)
    events = [row for table, row in probe.session.rows if table == "mem_event"]  # type: ignore[attr-defined]
    assert [(e["action"], e["bytes"], e["device_free"], e["step"]) for e in events] == [("oom", 1 << 29, 1 << 20, 3), ("oom", 1 << 30, 1 << 20, 3)]
    assert pickle.loads((tmp_path / "capture" / "memory.rank1.pickle").read_bytes()) == {"segments": [], "device_traces": []}
    assert [row["phase"] for table, row in probe.session.rows if table == "mem_sample"] == ["oom", "oom"]  # type: ignore[attr-defined]


def test_pieces_leave_out_segments_that_are_wholly_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def block(size: int, state: str) -> dict[str, Any]:
        return {"size": size, "state": state}

    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda **options: [
        {"device": 0, "allocated_size": 0, "blocks": [block(900, "inactive")]},
        {"device": 0, "allocated_size": 5, "blocks": [block(5, "active_allocated"), block(7, "inactive"), block(3, "inactive")]},
        {"device": 1, "allocated_size": 5, "blocks": [block(500, "inactive")]},
    ])
    assert memory_devices.pieces(0) == {"largest_free": 7, "in_pieces": 10}
