"""The sanitizer as a probe: switched by step, its findings recorded as they come."""

from __future__ import annotations

import time

import torch

from gpudoctor.probes.frames import shown
from gpudoctor.probes.probe import Probe
from gpudoctor.probes.sanitize.detector import MISSING_RECORD
from gpudoctor.probes.sanitize.races import Access, Frame, Race, stack_text, users_frame
from gpudoctor.probes.sanitize.sanitizer import Sanitizer
from gpudoctor.probes.sanitize.windows import Windows


class Sanitize(Probe):
    """Writes the table `race`, and how many steps were watched as the fact `sanitize-coverage`."""

    def start(self) -> None:
        self._told: dict[int, int] = {}
        self._watched = 0
        self._sanitizer: Sanitizer | None = None
        if not torch.cuda.is_available():
            self.session.fact("sanitize-unavailable", detail="no CUDA device; the sanitizer watches CUDA streams")
            return
        session = self.session
        self._windows = Windows()
        self._sanitizer = Sanitizer(muted=lambda: session._depth > 0)
        self._sanitizer.switch_on()
        self._last = time.perf_counter_ns()
        session.recorder.add("race", {"rank": []})

    def on_step_end(self, step: int) -> None:
        sanitizer = self._sanitizer
        if sanitizer is None:
            return
        self._watched += sanitizer.active
        sanitizer.mode.settle()
        sanitizer.detector.step = step + 1
        now = time.perf_counter_ns()
        watch = self._windows.after(now - self._last)
        if watch != sanitizer.active:
            (sanitizer.switch_on if watch else sanitizer.switch_off)()
            now = time.perf_counter_ns()
        self._last = now
        if len(sanitizer.races) > len(self._told):
            self._tell(only_new=True)

    def finish(self) -> None:
        sanitizer = self._sanitizer
        if sanitizer is None:
            return
        sanitizer.switch_off()
        self._tell(only_new=False)
        mode = sanitizer.mode
        if mode.failures:
            self.session.fact("sanitize-failures", detail=mode.failure, value=float(mode.failures))
        ratio = self._windows.ratio
        detail = f"watched {self._watched} of {self.session.step} steps" + (f"; a watched step takes {ratio:.2f} times a bare one" if ratio else "")
        self.session.fact("sanitize-coverage", detail=detail, value=float(self._watched))

    def _tell(self, only_new: bool) -> None:
        assert self._sanitizer is not None
        for race in list(self._sanitizer.races):
            told = self._told.get(id(race), 0)
            if race.count > told and not (only_new and told):
                self._told[id(race)] = race.count
                self.session.recorder.add("race", {"rank": self.session.rank, **row(race), "count": race.count - told})


def row(race: Race) -> dict[str, object]:
    """A race as a row of the table; the place is where the mending belongs."""
    first, second = users_frame(race.first.site), users_frame(race.second.site)
    wanted = first if race.kind == MISSING_RECORD or race.second.in_backward else second
    place = wanted or second or first
    other = first if place is second else second
    return {
        "step": race.step, "kind": race.kind, "bytes": race.bytes, "sure": race.sure, "count": race.count,
        **_side("first", race.first), **_side("second", race.second),
        "path": shown(place.path) if place else None, "line": place.line if place else None, "other": _short(other),
    }


def _side(name: str, access: Access) -> dict[str, object]:
    return {
        f"{name}_stream": access.stream, f"{name}_op": access.op, f"{name}_access": "writes" if access.writes else "reads",
        f"{name}_stack": stack_text(access.site),
    }


def _short(frame: Frame | None) -> str | None:
    return f"{shown(frame.path)}:{frame.line}" if frame else None
