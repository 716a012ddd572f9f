"""Accumulation windows of a training loop: which micro-batches feed each optimizer step, and how they were synchronised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudoctor.source.events import Event, Region
from gpudoctor.source.simulate import Entry, runs
from gpudoctor.source.training import BACKWARDS, STEPS, no_grad
from gpudoctor.source.values import alternatives, const_of, is_kind


@dataclass(slots=True)
class Micro:
    """One backward; `quiet_by` is what kept its DDP forward from synchronising, if anything did."""

    backward: Event
    quiet_by: Event | None
    turn: int
    backward_reached: bool = True


@dataclass(slots=True)
class Window:
    """Micro-batches since the last step, the step, and the zero_grad and unscale_ calls between (with the number of micro-batches before each)."""

    micros: list[Micro] = field(default_factory=list)
    step: Event = None  # type: ignore[assignment]
    zeroed: list[tuple[Event, int]] = field(default_factory=list)
    unscaled: list[tuple[Event, int]] = field(default_factory=list)


def windows(loop: Region, extra: int = 0) -> Iterator[list[Window]]:
    """For each set of choices, the windows in order; micro-batches after the last step are left out."""
    for run in runs(loop, extra):
        yield _windows(run.entries)


def _windows(entries: list[Entry]) -> list[Window]:
    out: list[Window] = []
    now = Window()
    quiet: Event | None = None
    flag_off: Event | None = None
    forward_seen = False
    for entry in entries:
        event = entry.event
        if event.fn == "setattr" and const_of(event.args[0]) == "require_backward_grad_sync":
            flag_off = event if entry.stored is False else None
        elif event.fn == "ddp.__call__" and not any(no_grad(c) for c in entry.contexts):
            quiet, forward_seen = _quiet(entry, flag_off), True
        elif event.fn in BACKWARDS:
            now.micros.append(Micro(event, quiet if forward_seen else None, entry.turn))
        elif event.fn.endswith(".zero_grad"):
            now.zeroed.append((event, len(now.micros)))
        elif event.fn == "scaler.unscale_":
            now.unscaled.append((event, len(now.micros)))
        elif event.fn in STEPS:
            now.step = event
            if now.micros:
                out.append(now)
            now = Window()
    return out


def _quiet(entry: Entry, flag_off: Event | None) -> Event | None:
    for context in entry.contexts:
        for a in alternatives(context):
            if is_kind(a, "nosync") and a.op == "call":
                return a.event or entry.event
    return flag_off


def windows_of_length(loop: Region, turns: int) -> Iterator[list[Window]]:
    """Windows of a loop of a known length, for each set of choices."""
    for run in runs(loop, turns=turns):
        yield _windows(run.entries)
