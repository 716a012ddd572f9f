"""How each rank ended, from its last words, torchrun's engine, faulthandler, its stderr and its last heartbeat."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpudoctor.launch import stacks
from gpudoctor.launch.supervise import Outcome
from gpudoctor.launch.where import is_users
from gpudoctor.probes.heartbeat import Beat

_TOLD_TO = (signal.SIGTERM, signal.SIGINT)
_PEER_GONE = re.compile(
    r"[Cc]onnection (?:closed|reset|was (?:likely )?closed|aborted)|remote (?:worker|process)|ncclRemoteError|Broken pipe|Socket Timeout|failed to recv|NCCL communicator was aborted"
)
_TIMED_OUT = re.compile(r"Timed out waiting (\d+) ?ms|Timeout\(ms\)=(\d+)")
_TELLING = re.compile(r"Watchdog caught collective operation timeout|terminate called|^\s*what\(\)|\b[A-Z]\w*(?:Error|Exception)\b.*: |CUDA error|Fatal Python error|out of memory")
_SIGNAL_WORDS = re.compile(r"\b(SIG[A-Z]{3,5})\b|exitcode\s*:\s*-(\d+)")


def rank_rows(folder: Path, ends: Path | None, outcome: Outcome, stopped: bool) -> list[dict[str, Any]]:
    """Rows of table rank_info, one a rank that came up; `stopped`: the doctor ended the run, ranks alive then were stuck."""
    engine = _json(ends)
    rows = []
    for rank, beat in sorted(outcome.beats.items()):
        words = last_words(folder, beat)
        told = engine.get(str(rank), {})
        killed = int(told.get("signal", 0)) if told.get("pid") == beat.pid else stacks.fatal_signal(folder / f"rank{rank}.fatal")
        if words and killed in _TOLD_TO:
            killed = 0  # it had come to its end already; the launcher only hastened its exit
        rows.append(_row(beat, words, killed, stopped, outcome))
    first = first_dead(rows)
    for row in rows:
        row["victim"] = row["state"] in ("failed", "killed") and row is not first and (row["signal"] in _TOLD_TO or _blames_peer(row))
    return rows


def unborn(outcome: Outcome) -> list[dict[str, Any]]:
    """The row for a launcher that failed before any rank came up; it names no rank."""
    if not outcome.code or outcome.signal:
        return []
    killed = max(0, -outcome.code)
    return [{"state": "killed" if killed else "failed", "exit_code": outcome.code if outcome.code > 0 else 128 + killed, "signal": killed,
             "last_line": _first_error(outcome.launcher_words), "source": "launch", "host": socket.gethostname(), "last_step": -1}]


def first_dead(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The rank that failed before the others, those aside that were told to end or lost a peer."""
    dead = [r for r in rows if r["state"] in ("failed", "killed")]
    return min(dead, key=lambda r: (r["signal"] in _TOLD_TO, _blames_peer(r), r["t_end"] or 0, r["rank"]), default=None)


def last_words(folder: Path, beat: Beat) -> dict[str, Any]:
    """What the rank itself wrote when its script ended; empty if it had no time to."""
    words = _json(folder / f"rank{beat.rank}.end")
    return words if words.get("pid") == beat.pid else {}


def _row(beat: Beat, words: Mapping[str, Any], killed: int, stopped: bool, outcome: Outcome) -> dict[str, Any]:
    head = beat.head
    ended = words.get("t_end") or outcome.gone_at.get(beat.rank) or head["t"]
    row: dict[str, Any] = {
        "rank": beat.rank, "pid": beat.pid, "host": socket.gethostname(), "last_step": head["step"], "source": "launch", "signal": killed, "t_end": ended,
        **{k: head[k] for k in ("world_size", "local_rank", "backend", "device", "attempt", "op", "phase", "issued") if k in head},
        **{k: words[k] for k in ("exit_code", "last_line", "state", "error") if k in words},
        "quiet_ns": max(0, min(ended, time.time_ns()) - int(head["t"])),
    }
    if killed and not (stopped and not words):
        row |= {"exit_code": 128 + killed, "state": "killed"}
    elif not words:
        row |= {"state": "stuck", "exit_code": -1} if stopped else {"state": "killed", "exit_code": -1}
        row["signal"] = 0 if stopped else signal_in_text(outcome.launcher_words)
    if not row.get("last_line") and row["state"] != "done":
        row["last_line"] = telling_line(outcome.tails.get(beat.rank, ""))
    if match := _TIMED_OUT.search(row.get("last_line") or ""):
        row["timeout_ns"] = int(match[1] or match[2]) * 1_000_000
    if user := next((f for f in words.get("frames", ()) if is_users(f["file"])), None):
        row |= {"path": user["file"], "line": user["line"], "func": user["func"]}
    return row


def telling_line(text: str) -> str:
    """The line of a rank's stderr that says why it ended; empty if none does. Of several the first counts."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if _TELLING.search(line)), "")[:2000]


def _first_error(text: str) -> str:
    """The first line that names an exception, else the last line: a launcher prints its own traceback after the script's."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if re.match(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b", line)), lines[-1] if lines else "")[:2000]


def signal_in_text(text: str) -> int:
    """The signal that a launcher's own words name, 0 if they name none."""
    for match in _SIGNAL_WORDS.finditer(text):
        if match[1] and match[1] in signal.Signals.__members__:
            return int(signal.Signals[match[1]])
        if match[2]:
            return int(match[2])
    return 0


def _blames_peer(row: Mapping[str, Any]) -> bool:
    return bool(_PEER_GONE.search(row.get("last_line") or "")) and not row.get("timeout_ns")


def _json(path: Path | None) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        if path is not None:
            value = json.loads(path.read_text("utf-8"))
            if isinstance(value, dict):
                return value
    return {}
