"""How each rank ended, from its last words, torchrun's engine, faulthandler and what the watch saw."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpudoctor.launch.stacks import fatal_signal
from gpudoctor.launch.supervise import Outcome

_SIGNAL_WORDS = re.compile(r"(?:exitcode\s*:\s*|signal |Signal |exit code:? )-?(\d+)|\b(SIG[A-Z]{3,5})\b")


def rank_rows(folder: Path, ends: Path | None, outcome: Outcome, stopped: bool) -> list[dict[str, Any]]:
    """Rows of table rank_info, one a rank that came up; `stopped`: the doctor ended the run, ranks alive then were stuck."""
    engine = _json(ends)
    host = socket.gethostname()
    rows = []
    for rank, beat in sorted(outcome.beats.items()):
        words = _json(folder / f"rank{rank}.end")
        if words.get("pid") != beat.pid:
            words = {}
        killed = _killing_signal(engine.get(str(rank), {}), beat.pid, fatal_signal(folder / f"rank{rank}.fatal"))
        row: dict[str, Any] = {
            "rank": rank, "pid": beat.pid, "host": host, "last_step": beat.head.get("step", -1), "source": "launch",
            **{k: beat.head[k] for k in ("world_size", "local_rank", "backend", "device") if k in beat.head},
            **{k: words[k] for k in ("exit_code", "last_line", "state", "error", "path", "line", "func") if k in words},
            "signal": killed, "t_end": words.get("t_end", outcome.gone_at.get(rank, beat.head.get("t"))),
        }
        if killed:
            row |= {"exit_code": 128 + killed, "state": "killed"}
        elif not words:
            row |= {"state": "stuck" if stopped else "killed", "exit_code": -1}
        rows.append(row)
    first = first_dead(rows)
    for row in rows:
        row["victim"] = first is not None and row is not first and row["state"] != "done"
    return rows


def first_dead(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The rank that failed before the others; those that a SIGTERM ended were told to by someone."""
    dead = [r for r in rows if r["state"] in ("failed", "killed") and r.get("exit_code") != 130]
    dead.sort(key=lambda r: (r["signal"] in (signal.SIGTERM, signal.SIGINT), r["t_end"] or 0, r["rank"]))
    return dead[0] if dead else None


def signal_in_text(text: str) -> int:
    """The signal that a launcher's own words name, 0 if they name none."""
    for match in _SIGNAL_WORDS.finditer(text):
        if match[2] and match[2] in signal.Signals.__members__:
            return int(signal.Signals[match[2]])
        if match[1] and match[0].rstrip(match[1]).endswith("-"):
            return int(match[1])
    return 0


def _killing_signal(engine: Mapping[str, Any], pid: int, fatal: int) -> int:
    if engine.get("pid") == pid:
        return int(engine.get("signal", 0))
    return fatal


def _json(path: Path | None) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        if path is not None:
            value = json.loads(path.read_text("utf-8"))
            if isinstance(value, dict):
                return value
    return {}
