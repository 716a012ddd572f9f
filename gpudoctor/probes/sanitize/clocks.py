"""Happens-before between streams and the host.

Every operation has a position on its stream, from 1. A stream knows, for every other stream, up to which position
that one's work is finished before its own next operation starts. The host knows the same; what the host has waited
for is finished for everybody.
"""

from __future__ import annotations

Stream = int
Event = int
Knowledge = dict[Stream, int]


class Clocks:
    """Positions and knowledge of all streams; a stream exists once it is named."""

    def __init__(self) -> None:
        self.position: dict[Stream, int] = {}
        self.known: dict[Stream, Knowledge] = {}
        self.host: Knowledge = {}
        self._events: dict[Event, tuple[Stream, Knowledge]] = {}
        self._waits: dict[tuple[Stream, Stream], int] = {}

    def launch(self, stream: Stream) -> int:
        """Give the next operation of `stream` its position."""
        position = self.position.get(stream, 0) + 1
        self.position[stream] = position
        return position

    def record(self, event: Event, stream: Stream) -> None:
        """The event completes with all that `stream` has been given so far."""
        self._events[event] = stream, {**self.known.get(stream, {}), stream: self.position.get(stream, 0)}

    def forget(self, event: Event) -> None:
        self._events.pop(event, None)

    def wait(self, event: Event, stream: Stream, now: int) -> None:
        """What `stream` is given from here on starts after the event; `now` is the host's count of operations."""
        recorded = self._events.get(event)
        if recorded is None:
            return
        _merge(self.known.setdefault(stream, {}), recorded[1])
        self._waits[stream, recorded[0]] = now

    def host_waits_for_event(self, event: Event) -> None:
        recorded = self._events.get(event)
        if recorded is not None:
            _merge(self.host, recorded[1])

    def host_waits_for_stream(self, stream: Stream) -> None:
        _merge(self.host, {**self.known.get(stream, {}), stream: self.position.get(stream, 0)})

    def host_waits_for_all(self) -> None:
        self.host.update(self.position)

    def finished(self, other: Stream, stream: Stream) -> int:
        """Up to which position `other` is finished before the next operation of `stream` starts."""
        known = self.known.get(stream)
        return max(self.host.get(other, 0), known.get(other, 0) if known else 0)

    def waited_since(self, stream: Stream, other: Stream, then: int) -> bool:
        """True if `stream` was told to wait for an event of `other` after the host's operation `then`."""
        return self._waits.get((stream, other), -1) >= then


def _merge(into: Knowledge, more: Knowledge) -> None:
    for stream, position in more.items():
        if into.get(stream, 0) < position:
            into[stream] = position
