"""Run a launch from its start to its end: pass output on, watch for stalls and signals, end it in bounded time."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from gpudoctor.launch import flight, processes, stacks
from gpudoctor.launch.command import Launch
from gpudoctor.launch.output import Output
from gpudoctor.launch.watchdog import Watchdog, beats_in
from gpudoctor.probes.heartbeat import Beat
from gpudoctor.rundir import RunDir

INTERRUPT_GRACE_S = 8.0
TERM_GRACE_S = 4.0
ORPHAN_GRACE_S = 5.0
_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Outcome:
    """How a run went. `code` is the launcher's exit status (negative: signal); `signal` what the doctor itself was sent."""

    code: int = 0
    signal: int = 0
    stalled_s: float | None = None
    beats: dict[int, Beat] = field(default_factory=dict)
    gone_at: dict[int, int] = field(default_factory=dict)
    launcher_words: str = ""
    tails: dict[int, str] = field(default_factory=dict)


class Supervisor:
    """Owns the launcher's process and the loop around it."""

    def __init__(self, run: RunDir, folder: Path, launch: Launch, hang_timeout: float, show: Callable[[str, bytes], None],
                 tick: Callable[[dict[int, Beat]], None] = lambda beats: None) -> None:
        self._folder, self._launch, self._tick, self._capture = folder, launch, tick, run.capture
        self._output = Output(run, folder, show)
        self._watchdog = Watchdog(folder, hang_timeout)
        self._outcome = Outcome()
        self._signals: list[int] = []
        self._started = time.monotonic()

    def run(self) -> Outcome:
        """Start it, and return when it and all its ranks are gone."""
        before = {s: signal.signal(s, self._on_signal) for s in _CAUGHT if signal.getsignal(s) is not signal.SIG_IGN}
        try:
            process = subprocess.Popen(
                self._launch.argv, env=dict(self._launch.environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )
            for stream, pipe in (("out", process.stdout), ("err", process.stderr)):
                assert pipe is not None
                self._output.add_launcher(stream, pipe.fileno(), show=self._launch.ends is None)
            self._watch(process)
            self._reap(process)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self._output.close()
        self._outcome.beats = beats_in(self._folder)
        self._outcome.tails = {rank: tail.decode("utf-8", "replace") for rank, tail in self._output.tails.items()}
        self._outcome.launcher_words = self._outcome.tails.get(-1, "")
        return self._outcome

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        looked = 0.0
        while process.poll() is None:
            self._output.pump(0.05)
            if time.monotonic() - looked >= 0.1:
                looked = time.monotonic()
                self._look()
            if self._signals:
                self._outcome.signal = self._signals[0]
                self._interrupt(process)
            elif (stalled := self._watchdog.stalled_for(self._output.received)) is not None:
                self._outcome.stalled_s = stalled
                stacks.request(beats_in(self._folder).values(), self._folder)
                flight.request(self._folder, self._capture)
                self._end(process)

    def _look(self) -> None:
        self._output.look_for_ranks()
        beats = beats_in(self._folder)
        for rank, beat in beats.items():
            if beat.alive():
                self._outcome.gone_at.pop(rank, None)
            else:
                self._outcome.gone_at.setdefault(rank, time.time_ns())
        self._tick(beats)

    def _interrupt(self, process: subprocess.Popen[bytes]) -> None:
        """Pass the signal on as a terminal would, wait a while, then insist."""
        stacks.request(beats_in(self._folder).values(), self._folder, wait_s=0.5)
        with suppress(OSError):
            os.killpg(process.pid, self._signals[0])
        self._wait(process, INTERRUPT_GRACE_S, lambda: len(self._signals) > 1)
        if not self._ranks():
            self._wait(process, self._launch.finish_s, lambda: len(self._signals) > 1)
        self._end(process)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        pids = self._pids(process)
        processes.send(pids, signal.SIGTERM)
        self._wait(process, TERM_GRACE_S, lambda: False)
        processes.send([p for p in pids | self._pids(process) if processes.alive(p)], signal.SIGKILL)
        self._wait(process, TERM_GRACE_S, lambda: False)

    def _wait(self, process: subprocess.Popen[bytes], seconds: float, enough: Callable[[], bool]) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not enough():
            self._output.pump(0.05)
            if process.poll() is not None and not self._ranks():
                return

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        """The launcher is gone: give its ranks a moment to follow, then end them."""
        self._outcome.code = process.wait()
        self._wait(process, ORPHAN_GRACE_S, lambda: bool(self._signals))
        if left := self._ranks():
            processes.end(processes.descendants(left), TERM_GRACE_S)
        self._look()

    def _pids(self, process: subprocess.Popen[bytes]) -> set[int]:
        return processes.descendants({process.pid, *self._ranks()})

    def _ranks(self) -> set[int]:
        return {b.pid for b in beats_in(self._folder).values() if b.alive()}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)

