"""Starting ranks: how failures and stalls are told, and that nothing is left running."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from gpudoctor.harness.ranks import environment, free_port, start_ranks


def module(folder: Path, body: str, monkeypatch: pytest.MonkeyPatch) -> str:
    (folder / "stand_in.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return "stand_in"


def test_ranks_know_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, "import os, sys; print(os.environ['RANK'], os.environ['WORLD_SIZE'], sys.argv[1])", monkeypatch)
    logs = [tmp_path / f"{n}.txt" for n in range(3)]
    assert start_ranks(3, name, ["hello"], logs, 30).problem == ""
    assert [log.read_text().strip() for log in logs] == ["0 3 hello", "1 3 hello", "2 3 hello"]


def test_no_outgoing_connection_can_take_a_port_meanwhile() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port := free_port()))
        assert 20_000 <= port < 32_768


def test_a_failed_rank_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = module(tmp_path, "import os, time\nif os.environ['RANK'] == '1': raise RuntimeError('no memory left')\ntime.sleep(60)", monkeypatch)
    begin = time.monotonic()
    outcome = start_ranks(2, name, [], [tmp_path / "0.txt", tmp_path / "1.txt"], 50)
    assert outcome.problem == "rank 1 ended with exit code 1: RuntimeError: no memory left"
    assert time.monotonic() - begin < 30


def test_a_stall_is_ended_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"import os, subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\nopen(r'{tmp_path / 'pid'}', 'w').write(str(child.pid))\ntime.sleep(600)"
    name = module(tmp_path, body, monkeypatch)
    outcome = start_ranks(1, name, [], [tmp_path / "0.txt"], 3)
    assert outcome.problem.startswith("not finished after 3 s")
    pid = int((tmp_path / "pid").read_text())
    for _ in range(50):
        if not _runs(pid):
            break
        time.sleep(0.1)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return not Path("/proc").is_dir()


def test_a_launcher_around_us_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.setenv(name, "3")
    assert not {"RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"} & environment(2).keys()
