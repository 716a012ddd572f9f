"""A run is stalled only when nothing moves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudoctor.launch import watchdog as module
from gpudoctor.launch.watchdog import BUSY_FACTOR, Watchdog
from gpudoctor.probes.heartbeat import Heart


class _World:
    """A clock and the work that processes have done, moved by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, timeout: float = 100.0) -> None:
        self.now, self.cpu, self.moved, self.received = 0.0, 0.0, 0, 0
        monkeypatch.setattr(module, "work_done", lambda pids: (self.cpu, self.moved))
        self.heart = Heart(folder, 0, 1)
        self.dog = Watchdog(folder, timeout, clock=lambda: self.now)

    def stalled_within(self, seconds: int, cpu: float = 0.0, moved: int = 0, beat: bool = False, received: int = 0) -> bool:
        """Let time pass, at so much work a second."""
        for _ in range(seconds):
            self.now += 1
            self.cpu += cpu
            self.moved += moved
            self.received += received
            if beat:
                self.heart.step(int(self.now))
            if self.dog.stalled_for(self.received) is not None:
                return True
        return False


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _World:
    return _World(monkeypatch, tmp_path)


def test_all_idle_is_a_stall_after_the_timeout(world: _World) -> None:
    assert not world.stalled_within(99)
    assert world.stalled_within(5)


def test_steps_are_progress(world: _World) -> None:
    assert not world.stalled_within(2000, beat=True)


def test_output_is_progress(world: _World) -> None:
    assert not world.stalled_within(2000, received=10)


def test_a_long_preparation_that_computes_or_reads_is_left_alone(world: _World) -> None:
    assert not world.stalled_within(250, cpu=0.9)
    assert not world.stalled_within(250, moved=1 << 22)


def test_ranks_that_only_spin_are_given_longer(world: _World) -> None:
    assert not world.stalled_within(BUSY_FACTOR * 100 - 5, cpu=1.0)
    assert world.stalled_within(10, cpu=1.0)


def test_zero_turns_it_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert not _World(monkeypatch, tmp_path, timeout=0).stalled_within(5000)


def test_before_any_rank_is_up_nothing_is_stalled(tmp_path: Path) -> None:
    now = [0.0]
    dog = Watchdog(tmp_path, 10, clock=lambda: now[0])
    for _ in range(100):
        now[0] += 1
        assert dog.stalled_for(0) is None
    assert os.listdir(tmp_path) == []
