"""Parts of the launcher that need no ranks."""

from __future__ import annotations

import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.cli.run_report import report_on
from gpudoctor.config import Config
from gpudoctor.errors import GpudoctorError, UsageError
from gpudoctor.launch import ends, flight, rank, stacks
from gpudoctor.launch import plan as planning
from gpudoctor.launch.command import torchrun
from gpudoctor.launch.environment import allowed, nccl_defaults
from gpudoctor.launch.live import LiveLine, describe
from gpudoctor.launch.loops import loop_around
from gpudoctor.launch.nsys import under_nsys
from gpudoctor.launch.output import Output
from gpudoctor.launch.plan import Plan, carry_out
from gpudoctor.launch.session import Session
from gpudoctor.launch.supervise import Outcome
from gpudoctor.launch.surroundings import record_machine
from gpudoctor.launch.where import is_users
from gpudoctor.machine.seam import RecordedMachine
from gpudoctor.nsight import find_nsys
from gpudoctor.probes.heartbeat import SLOTS, Beat, Heart, read
from gpudoctor.probes.settings import ProbeSettings, from_environment
from gpudoctor.rulebook.load import load_rules
from gpudoctor.rundir import RunDir


def _beat(rank: int, **head: Any) -> Beat:
    return Beat({"rank": rank, "pid": 1, "step": 0, "op": "", "state": "running", **head}, [])


def test_heartbeat_comes_back_as_written(tmp_path: Path) -> None:
    heart = Heart(tmp_path, rank=3, world_size=4, local_rank=1)
    heart.step(7)
    heart.phase("backward")
    done = heart.enter("all_reduce", "world", 10, "float32", "train.py", 5, "main")
    heart.leave(done)
    heart.enter("barrier", "world")
    beat = read(tmp_path / "rank3.beat")
    assert beat is not None
    assert (beat.rank, beat.pid, beat.head["step"], beat.head["phase"], beat.head["op"], beat.head["issued"]) == (3, os.getpid(), 7, "backward", "barrier", 2)
    assert [(c["op"], c["seq"], c["state"]) for c in beat.collectives] == [("all_reduce", 0, "completed"), ("barrier", 1, "started")]
    assert beat.alive()


def test_heartbeat_keeps_the_latest_and_counts_by_group(tmp_path: Path) -> None:
    heart = Heart(tmp_path, rank=0, world_size=1)
    for n in range(SLOTS + 10):
        heart.leave(heart.enter("all_reduce", "a" if n % 2 else "b"))
    beat = read(tmp_path / "rank0.beat")
    assert beat is not None
    assert [c["ticket"] for c in beat.collectives] == list(range(10, SLOTS + 10))
    assert beat.collectives[-1]["seq"] == (SLOTS + 10) // 2 - 1


def test_heartbeat_of_the_dead_is_not_alive(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        Heart(tmp_path, rank=0, world_size=1)
        os._exit(0)
    os.waitpid(pid, 0)
    beat = read(tmp_path / "rank0.beat")
    assert beat is not None
    assert not beat.alive()


def test_heartbeat_never_raises(tmp_path: Path) -> None:
    heart = Heart(tmp_path / "absent", rank=0, world_size=1)
    heart.step(1)
    heart.leave(heart.enter("barrier"))


def test_settings_travel() -> None:
    settings = ProbeSettings(out="/runs/a", sanitize=True, overhead_budget=0.02)
    back = from_environment({**settings.to_environment(), "RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"})
    assert back == ProbeSettings(out="/runs/a", sanitize=True, overhead_budget=0.02, rank=3, world_size=8, local_rank=1)
    assert from_environment({}) is None
    assert from_environment({"GPUDOCTOR_PROBES": '{"out": "x", "newer": 1}'}) == ProbeSettings(out="x")


def test_only_listed_variables_are_recorded() -> None:
    kept = allowed({"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0", "AWS_SECRET_ACCESS_KEY": "x", "HF_TOKEN": "x", "CUDA_API_KEY": "x", "HOME": "/root", "RANK": "1"})
    assert kept == {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0", "RANK": "1"}


def test_users_nccl_settings_stay() -> None:
    added = nccl_defaults(Path("/r/capture"), Path("/p"), {"NCCL_DEBUG": "WARN"})
    assert not any(k.startswith("NCCL_") for k in added)
    assert nccl_defaults(Path("/r/capture"), Path("/p"), {})["NCCL_DEBUG_FILE"].startswith("/r/capture/nccl.")


def test_flight_recorders_are_asked_through_their_pipes(tmp_path: Path) -> None:
    """A reader as PyTorch's: it opens its pipe for reading and dumps when something arrives."""
    os.mkfifo(tmp_path / "flight0.pipe")
    reader = os.open(tmp_path / "flight0.pipe", os.O_RDONLY | os.O_NONBLOCK)
    (tmp_path / "flight.rank0").touch()
    flight.request(tmp_path, tmp_path, wait_s=1)
    assert os.read(reader, 8) == b"1\n"
    os.close(reader)
    flight.request(tmp_path, tmp_path, wait_s=1)


def test_machine_is_recorded_with_the_run(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run")
    record_machine(run, RecordedMachine.load(Path(__file__).parents[1] / "machine" / "data" / "two_geforce.json"))
    tables = [json.loads(line)[0] for line in (run.capture / "machine.jsonl").read_text("utf-8").splitlines()]
    assert tables.count("gpu") == 2
    assert set(tables) == {"gpu", "link", "machine_fact"}


def test_between_the_cards_of_a_machine_with_one_there_is_nothing_to_judge(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run")
    record_machine(run, RecordedMachine.load(Path(__file__).parents[1] / "machine" / "data" / "one_card.json"))
    lines = [json.loads(line) for line in (run.capture / "machine.jsonl").read_text("utf-8").splitlines()]
    assert [row for table, row in lines if table == "link"] == [{"host": []}]


def test_a_run_of_which_nothing_can_be_read_still_has_its_report(tmp_path: Path) -> None:
    session = Session(Outcome(code=0, signal=0, stalled_s=None), [], [], written=True)
    report = report_on(RunDir.create(tmp_path / "run"), session, Plan(("train.py",)), False, load_rules(), Config())
    assert report.findings == []
    assert (tmp_path / "run" / "findings.json").is_file()


def test_an_interrupt_between_two_lines_stands_at_its_function(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        monkeypatch.setattr(rank.traceback, "walk_tb", lambda tb: [(tb.tb_frame, None)])
        (frame,) = rank._frames(error)
    first = test_an_interrupt_between_two_lines_stands_at_its_function.__code__.co_firstlineno
    assert (frame["line"], frame["func"], loop_around(__file__, frame["line"])) == (first, "test_an_interrupt_between_two_lines_stands_at_its_function", None)


def test_loop_around(tmp_path: Path) -> None:
    source = tmp_path / "train.py"
    source.write_text("for e in a:\n    for b in e:\n        b()\n    after()\nend()\n", "utf-8")
    assert [loop_around(str(source), n) for n in (3, 4, 5)] == [(2, 3), (1, 4), None]
    assert loop_around(str(tmp_path / "absent.py"), 1) is None


def test_whose_code() -> None:
    assert is_users("/home/me/train.py")
    assert not is_users(json.__file__)
    assert not is_users("/venv/lib/python3.12/site-packages/torch/nn/modules/module.py")
    assert not is_users(stacks.__file__)


def test_stack_dump_is_read_main_thread_first() -> None:
    old = 'Current thread 0x00007f00 (most recent call first):\n  File "old.py", line 1 in old\n'
    text = old + (
        'Thread 0x00007f01 (most recent call first):\n  File "/lib/threading.py", line 9 in run\n\n'
        'Current thread 0x00007f00 (most recent call first):\n  File "train.py", line 30 in work\n  File "train.py", line 44 in <module>\n'
    )
    frames = stacks.parse(text)
    assert [(f["thread"], f["depth"], f["file"], f["line"], f["func"]) for f in frames] == [
        (0, 0, "train.py", 30, "work"), (0, 1, "train.py", 44, "<module>"), (1, 0, "/lib/threading.py", 9, "run"),
    ]


def test_signal_named_by_another_launcher() -> None:
    assert ends.signal_in_text("process 1 terminated with signal SIGKILL") == signal.SIGKILL
    assert ends.signal_in_text("  exitcode  : -6 (pid: 123)") == signal.SIGABRT
    assert ends.signal_in_text("  exitcode  : 1 (pid: 123)") == 0


def test_first_dead_is_neither_told_to_end_nor_robbed_of_its_peer() -> None:
    rows: list[dict[str, Any]] = [
        {"rank": 0, "state": "failed", "signal": 0, "t_end": 1, "last_line": "RuntimeError: Connection closed by peer [::1]"},
        {"rank": 1, "state": "killed", "signal": 15, "t_end": 2},
        {"rank": 2, "state": "killed", "signal": 9, "t_end": 3},
        {"rank": 3, "state": "done", "signal": 0, "t_end": 0},
    ]
    first = ends.first_dead(rows)
    assert first is not None
    assert first["rank"] == 2
    assert ends.first_dead(rows[3:]) is None


def test_line_that_tells_why() -> None:
    text = (
        "loading\n[rank1]:[E1202 09:24:16 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600001 milliseconds before timing out.\nterminate called after throwing\n"
    )
    assert "Watchdog caught" in ends.telling_line(text)
    assert ends.telling_line("epoch 1\nepoch 2\n") == ""


def test_output_is_kept_and_errors_of_other_ranks_are_shown(tmp_path: Path) -> None:
    run, folder = RunDir.create(tmp_path / "run"), tmp_path / "pipes"
    folder.mkdir()
    shown: list[tuple[str, bytes]] = []
    output = Output(run, folder, lambda stream, data: shown.append((stream, data)))
    for name in ("rank0.out", "rank1.out", "rank1.err"):
        os.mkfifo(folder / name)
    output.look_for_ranks()
    for name, text in (("rank0.out", b"loss 0.5\n"), ("rank1.out", b"loss 0.6\n"), ("rank1.err", b"chatter\nTraceback (most recent call last):\n  File x\nValueError: bad\nmore chatter\n")):
        with open(folder / name, "wb") as pipe:
            pipe.write(text)
    output.close()
    assert (run.logs / "rank0.txt").read_bytes() == b"loss 0.5\n"
    assert b"loss 0.6" in (run.logs / "rank1.txt").read_bytes()
    assert ("out", b"loss 0.5\n") in shown
    told = b"".join(data for stream, data in shown if stream == "err")
    assert told == b"[rank 1] Traceback (most recent call last):\n[rank 1]   File x\n[rank 1] ValueError: bad\n"


def test_live_line_names_the_rank_behind() -> None:
    beats = {0: _beat(0, step=119, op="all_reduce"), 1: _beat(1, step=116)}
    assert describe(beats, 82e6) == "step 120 · 82 ms a step · rank 1 is 3 steps behind · 1 of 2 ranks wait in all_reduce"
    assert describe({0: _beat(0, step=-1)}, None) == ""


def test_live_line_stays_off_pipes() -> None:
    stream = io.StringIO()
    with LiveLine(stream) as live:
        live.update({0: _beat(0, step=5)})
        with live.aside(b"x\n"):
            pass
    assert stream.getvalue() == ""


def test_torchrun_options_are_passed_on(tmp_path: Path) -> None:
    plan = Plan(("train.py", "--lr", "1"), torchrun={"nproc_per_node": "4", "nnodes": "2", "rdzv_endpoint": "h:1", "max_restarts": None, "standalone": False})
    assert plan.torchrun_options() == ["--nproc-per-node", "4", "--nnodes", "2", "--rdzv-endpoint", "h:1"]
    pytest.importorskip("torch", reason="needs PyTorch to be found")
    (script := tmp_path / "train.py").touch()
    launch = torchrun(RunDir(tmp_path), ProbeSettings(out=str(tmp_path), beats=str(tmp_path)), ["--nnodes", "2"], str(script), ["--lr", "1"], environment={})
    assert launch.argv[-4:] == ("gpudoctor.launch.bootstrap", str(script), "--lr", "1")
    assert from_environment(launch.environment) == ProbeSettings(out=str(tmp_path), beats=str(tmp_path))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(("absent.py",)), "no such script"),
        (Plan(("absent-launcher", "x"), other_launcher=True), "no such command"),
        (Plan(("python", "x"), other_launcher=True, module=True), "-m names a module"),
    ],
)
def test_wrong_words_are_one_line(plan: Plan, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GpudoctorError, match=words):
        carry_out(plan)
    assert not list(tmp_path.glob("gpudoctor-runs/*")), "nothing is left behind by a run that never began"


def test_a_used_folder_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match="not empty"):
        carry_out(Plan(("python", "x.py"), other_launcher=True, out=tmp_path))


def test_nsys_is_found_by_name_and_path(tmp_path: Path) -> None:
    tool = tmp_path / "nsys"
    tool.write_text("#!/bin/sh\n", "utf-8")
    tool.chmod(0o755)
    assert find_nsys({"NSYS": str(tool)}) == tool
    assert find_nsys({"PATH": str(tmp_path)}) == tool
    assert find_nsys({"NSYS": str(tmp_path / "absent")}) is None
    launch = under_nsys(torchrun_like(tmp_path), RunDir(tmp_path), tool)
    assert launch.argv[:4] == (str(tool), "profile", "-t", "cuda,nvtx")
    assert launch.argv[-2:] == ("python", "train.py")


def bundled_nsys(tmp_path: Path, importer: str | None) -> Path:
    """As Nsight Compute brings it: target-linux-x64/nsys, its importer in a folder beside."""
    places = {"target-linux-x64/nsys": "exit 0"} | ({"linux-desktop-x64/QdstrmImporter": importer} if importer is not None else {})
    for place, script in places.items():
        (tmp_path / place).parent.mkdir()
        (tmp_path / place).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (tmp_path / place).chmod(0o755)
    return tmp_path / "target-linux-x64" / "nsys"


@pytest.mark.parametrize(
    ("importer", "why"),
    [
        (None, "its importer is not installed"),
        ("echo 'QdstrmImporter: error while loading shared libraries: libdw.so.1: cannot open shared object file' >&2; exit 127", "its importer lacks libdw.so.1"),
        ("echo 2025.3.1", ""),
    ],
)
def test_an_nsys_that_makes_no_reports_gives_way_to_kineto(importer: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tool = bundled_nsys(tmp_path, importer)
    monkeypatch.setenv("NSYS", str(tool))
    monkeypatch.setattr(planning, "gpus", lambda: 2)
    assert planning._capture("auto") == (("kineto", None) if why else ("nsys", tool))
    assert (f"{tool} makes no reports ({why}); torch.profiler captures instead" in capsys.readouterr().err) == bool(why)
    if why:
        with pytest.raises(UsageError, match=f"makes no reports .{why}"):
            planning._capture("nsys")


def torchrun_like(tmp_path: Path) -> Any:
    from gpudoctor.launch.command import Launch

    return Launch(("python", "train.py"), {}, None)


@pytest.mark.parametrize(
    ("victim", "dumped_in", "kept"), [(True, "{script}", 7), (True, "{ours}", 38), (False, "{script}", 38)], ids=["asked in time", "had left", "the cause"]
)
def test_a_victims_traceback_counts_if_it_was_asked_too_late(tmp_path: Path, victim: bool, dumped_in: str, kept: int) -> None:
    script = str(tmp_path / "train.py")
    file = dumped_in.format(script=script, ours=stacks.__file__)
    (tmp_path / "rank1.stacks").write_text(f'Current thread 0x1 (most recent call first):\n  File "{file}", line 7 in main\n')
    traceback = [{"depth": 0, "file": script, "line": 38, "func": "main"}]
    rows = stacks.frames(tmp_path, {1: traceback}, {1} if victim else set())
    assert [(r["rank"], r["line"]) for r in rows] == [(1, kept)]
