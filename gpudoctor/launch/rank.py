"""What the doctor sets up in a rank around the probes: output, heartbeat, stack dumps, last words."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpudoctor.launch.environment import allowed
from gpudoctor.launch.hooking import MARK
from gpudoctor.launch.where import is_users
from gpudoctor.probes import heartbeat
from gpudoctor.probes.settings import ProbeSettings

if TYPE_CHECKING:
    from gpudoctor.launch.kineto import Window

STACK_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else None


class Rank:
    """One watched rank process, from its first line to its last."""

    def __init__(self, settings: ProbeSettings) -> None:
        rank = max(settings.rank, 0)
        self.settings = replace(settings, rank=rank, world_size=max(settings.world_size, 1), local_rank=settings.local_rank if settings.local_rank >= 0 else rank)
        self.beats = Path(self.settings.beats) if settings.beats and Path(settings.beats).is_dir() else None
        self._files: list[Any] = []
        self._ended = False
        self._probing = False
        self._window: Window | None = None

    def begin(self, redirect: bool = True) -> None:
        """Make this process a watched rank and install the probes; nothing in here raises into the script."""
        s = self.settings
        os.environ[MARK] = str(os.getpid())
        if self.beats is not None:
            if redirect:
                with suppress(OSError):
                    _redirect(self.beats, s.rank)
            heartbeat.start(self.beats, s.rank, s.world_size, s.local_rank, s.attempt)
            with suppress(OSError, ValueError, RuntimeError):
                self._answer_stack_requests(self.beats)
        with suppress(OSError):
            self._record_environment()
        try:
            from gpudoctor import probes

            probes.install(s, arithmetic())
            self._probing = True
            if s.kineto:
                from gpudoctor.launch.kineto import Window

                self._window = Window(s.folder / "capture" / f"kineto.rank{s.rank}.json.gz", s.kineto, s.kineto_after)
        except Exception as error:
            print(f"gpudoctor: probes are off: {error!r}", file=sys.stderr)

    def last_words(self, error: BaseException | None) -> None:
        """Write down how the script ended: `error` is what left it, None if it came to its end."""
        if self._ended:
            return
        self._ended = True
        code, line = exit_status(error)
        state = "done" if code == 0 else "failed"
        words = {"rank": self.settings.rank, "pid": os.getpid(), "attempt": self.settings.attempt, "t_end": time.time_ns(),
                 "exit_code": code, "state": state, "last_line": line, "error": type(error).__name__ if error else "", "frames": _frames(error)}
        with suppress(OSError):
            self._write_down(words)
        if (h := heartbeat.heart()) is not None:
            h.end(state)
        if code and self.beats is not None and not isinstance(error, KeyboardInterrupt):
            with suppress(OSError, ValueError):
                _ask_peers_for_stacks(self.beats)

    def finish(self) -> None:
        """Let the profiler and the probes write what they still hold."""
        if self._window is not None:
            self._window.close()
        if self._probing:
            self._probing = False
            try:
                from gpudoctor import probes

                probes.finish()
            except Exception as error:
                print(f"gpudoctor: probes could not finish: {error!r}", file=sys.stderr)

    def _write_down(self, words: dict[str, Any]) -> None:
        """For the process that supervises the run; where there is none, as a row in the run folder."""
        if self.beats is not None:
            (self.beats / f"rank{self.settings.rank}.end").write_text(json.dumps(words), "utf-8")
        else:
            row = {**{k: v for k, v in words.items() if k != "frames"}, "world_size": self.settings.world_size, "host": socket.gethostname(), "source": "watch"}
            path = self.settings.folder / "capture" / f"end.rank{self.settings.rank}.jsonl"
            path.write_text(json.dumps(["rank_info", row]) + "\n", "utf-8")

    def _answer_stack_requests(self, folder: Path) -> None:
        file = open(folder / f"rank{self.settings.rank}.stacks", "a", encoding="utf-8")  # noqa: SIM115
        self._files.append(file)
        if not faulthandler.is_enabled():
            fatal = open(folder / f"rank{self.settings.rank}.fatal", "a", encoding="utf-8")  # noqa: SIM115
            self._files.append(fatal)
            faulthandler.enable(fatal)
        if STACK_SIGNAL is not None:
            faulthandler.register(STACK_SIGNAL, file=file, all_threads=True)

    def _record_environment(self) -> None:
        rows = sorted(allowed(os.environ).items())
        line = json.dumps(["env_var", {"rank": self.settings.rank, "name": [k for k, _ in rows], "value": [v for _, v in rows]}])
        with open(self.settings.folder / "capture" / f"environment.rank{self.settings.rank}.jsonl", "w", encoding="utf-8") as file:
            file.write(line + "\n")


def arithmetic() -> Any:
    """What computes gradient statistics: our kernel where the rank has a card, else None, for torch operations."""
    import torch

    if not torch.cuda.is_available():
        return None
    with suppress(ImportError):
        from gpudoctor.kernels.measure import KernelMeasure
        from gpudoctor.probes.measure import Measure

        return KernelMeasure(Measure())
    return None


def exit_status(error: BaseException | None) -> tuple[int, str]:
    """The exit code that Python gives for what left the script, and the last line of its traceback."""
    if error is None:
        return 0, ""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF, ""
        return 1, str(error.code)
    code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return code, "".join(traceback.format_exception_only(error)).strip()[:2000]


def _ask_peers_for_stacks(folder: Path) -> None:
    """Peers are about to be ended by the launcher; see first where they were."""
    peers = [b for b in map(heartbeat.read, folder.glob("rank*.beat")) if b is not None and b.pid != os.getpid()]
    running = [b.pid for b in peers if b.head.get("state") == "running" and b.alive()]
    if STACK_SIGNAL is not None and running:
        for pid in running:
            os.kill(pid, STACK_SIGNAL)
        time.sleep(0.1)


def _frames(error: BaseException | None) -> list[dict[str, Any]]:
    """The traceback's frames, innermost first, without the doctor's own and the interpreter's around them."""
    walked = traceback.walk_tb(error.__traceback__ if error else None)  # an interrupt can come between two lines: it has none
    found = [{"file": f.f_code.co_filename, "line": line or f.f_code.co_firstlineno, "func": f.f_code.co_name} for f, line in walked]
    while found and not is_users(found[0]["file"]) and any(is_users(f["file"]) for f in found):
        found.pop(0)
    return [{"depth": depth, **frame} for depth, frame in enumerate(reversed(found[-100:]))]


def _redirect(folder: Path, rank: int) -> None:
    """Send stdout and stderr to the doctor's two pipes; they stay as they are if nobody reads within a second."""
    for fd, name in ((1, "out"), (2, "err")):
        fifo = folder / f"rank{rank}.{name}"
        with suppress(FileExistsError):
            os.mkfifo(fifo, 0o600)
        pipe = _open_for_writing(fifo)
        if pipe is None:
            return
        stream = sys.stdout if fd == 1 else sys.stderr
        with suppress(Exception):
            stream.flush()
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        os.dup2(pipe, fd)
        os.close(pipe)


def _open_for_writing(fifo: Path) -> int | None:
    until = time.monotonic() + 1
    while time.monotonic() < until:
        try:
            pipe = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            time.sleep(0.01)
            continue
        os.set_blocking(pipe, True)
        return pipe
    return None
