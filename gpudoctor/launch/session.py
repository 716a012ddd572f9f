"""One run: folder, launch, supervision, and the rows that say how it ended."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpudoctor import __version__
from gpudoctor.launch import ends, stacks
from gpudoctor.launch.command import Launch
from gpudoctor.launch.supervise import Outcome, Supervisor
from gpudoctor.probes.heartbeat import Beat
from gpudoctor.rundir import RunDir

Rows = list[tuple[str, dict[str, Any]]]


@dataclass(slots=True)
class Session:
    """A finished run: how it went, and the rows for the tables in case the folder could not take them."""

    outcome: Outcome
    ranks: list[dict[str, Any]]
    rows: Rows
    written: bool

    @property
    def exit_code(self) -> int:
        """What the script's own end means for the shell: 0, its exit code, or 128 + signal; 1 for a stalled run that the doctor ended."""
        if self.outcome.signal:
            return 128 + self.outcome.signal
        if self.outcome.stalled_s is not None:
            return 1
        if self.outcome.code == 0:
            return 0
        first = ends.first_dead(self.ranks)
        if first is not None and first["exit_code"] > 0:
            return int(first["exit_code"])
        return self.outcome.code if self.outcome.code > 0 else 128 - self.outcome.code


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder for heartbeats, pipes and last words, in memory where there is such a place; gone afterwards."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK | os.X_OK) and shutil.disk_usage(memory).free > 1 << 24 else None
    folder = Path(tempfile.mkdtemp(prefix="gpudoctor-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run_session(run: RunDir, folder: Path, launch: Launch, *, hang_timeout: float, show: Callable[[str, bytes], None],
                tick: Callable[[dict[int, Beat]], None] = lambda beats: None, argv: Sequence[str] = ()) -> Session:
    """Run the launch to its end and record in the run folder how each rank ended."""
    with suppress(OSError):
        run.update_info(argv=list(argv), started=time.time(), state="running",
                        versions={"gpudoctor": __version__, "python": platform.python_version()}, cwd=os.getcwd())
    outcome = Supervisor(run, folder, launch, hang_timeout, show, tick).run()
    stopped = outcome.stalled_s is not None or bool(outcome.signal)
    ranks = ends.rank_rows(folder, launch.ends, outcome, stopped)
    rows = _rows(folder, outcome, ranks)
    session = Session(outcome, ranks, rows, _write(run.capture / launch.records, rows))
    with suppress(OSError):
        _name_nccl_logs(run, outcome.beats)
        run.update_info(state=_state(session), exit_code=session.exit_code, signal=outcome.signal, stalled_s=outcome.stalled_s,
                        ended=time.time(), ranks=len(ranks), world_size=max((r.get("world_size", 0) for r in ranks), default=0))
    return session


def _state(session: Session) -> str:
    if session.outcome.signal:
        return "interrupted"
    if session.outcome.stalled_s is not None:
        return "stalled"
    return "failed" if session.outcome.code else "done"


def _rows(folder: Path, outcome: Outcome, ranks: list[dict[str, Any]]) -> Rows:
    rows: Rows = [("rank_info", row) for row in ranks or ends.unborn(outcome)]
    if not outcome.code and not outcome.signal and outcome.stalled_s is None:
        return rows
    tracebacks = {rank: ends.last_words(folder, beat).get("frames", []) for rank, beat in outcome.beats.items()}
    victims = {row["rank"] for row in ranks if row.get("victim")}
    rows += [("stack_frame", frame) for frame in stacks.frames(folder, tracebacks, victims)]
    rows += [("last_collective", {"rank": rank, **c}) for rank, beat in sorted(outcome.beats.items()) for c in beat.collectives]
    if outcome.stalled_s is not None:
        rows.append(("fact", {"kind": "stalled", "value": outcome.stalled_s}))
    if outcome.signal:
        rows.append(("fact", {"kind": "interrupted", "value": float(outcome.signal)}))
    return rows


def _write(path: Path, rows: Rows) -> bool:
    if not rows:
        return True
    try:
        path.write_text("".join(json.dumps([table, row]) + "\n" for table, row in rows), "utf-8")
    except OSError:
        return False
    return True


def _name_nccl_logs(run: RunDir, beats: dict[int, Beat]) -> None:
    """NCCL named its logs by process; name them by rank."""
    by_pid = {b.pid: rank for rank, b in beats.items()}
    for log in run.capture.glob("nccl.*.log"):
        match = re.fullmatch(r"nccl\..*\.(\d+)\.log", log.name)
        if match and int(match[1]) in by_pid:
            log.rename(run.capture / f"nccl.rank{by_pid[int(match[1])]}.log")
