"""A rank ends as its script did, whatever native threads still have to do with Python."""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path

import pytest

from gpudoctor.settle import settle
from tests.launch.running import DATA, run
from tests.probes.ranks import facts, run_ranks


def test_a_thread_at_work_is_waited_for() -> None:
    worker = threading.Thread(target=hashlib.sha256, args=(bytes(60_000_000),))
    worker.start()
    assert settle(limit_s=20)
    assert not worker.is_alive()


def test_a_thread_that_never_rests_is_not() -> None:
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            hashlib.sha256(bytes(2_000_000))

    worker = threading.Thread(target=spin)
    worker.start()
    begin = time.monotonic()
    try:
        assert not settle(limit_s=0.2)
        assert time.monotonic() - begin < 5
    finally:
        stop.set()
        worker.join()


def test_a_script_that_ended_is_not_killed_by_a_late_callback(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch to run ranks")
    ran = run(tmp_path, str(DATA / "late_callback.py"), options=("--no-lint",))
    assert ran.serious == set()
    assert ran.code == 0


LEAVING = """
import torch.distributed as dist
from gpudoctor import settle
from gpudoctor.probes import _session as session
waited = []
settle.settle = lambda *a: waited.append(dist.is_initialized())
dist.init_process_group("gloo")
dist.destroy_process_group()
session.fact("waited", detail=str(waited))
"""


def test_a_group_is_left_once_its_threads_have_come_to_rest(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch to run ranks")
    (told,) = facts(run_ranks(tmp_path, LEAVING), "waited")
    assert told["detail"] == "[True]"
