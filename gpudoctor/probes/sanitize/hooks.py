"""Listens to CUDA's events, waits, synchronisations and allocations through torch's own trace hooks."""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

from gpudoctor.probes.sanitize.detector import Detector
from gpudoctor.probes.sanitize.mode import SanitizeMode


class _Direct:
    """Stands in for torch's registry of callbacks: one callee, called without a loop."""

    def __init__(self, callee: Callable[..., Any]) -> None:
        self.fire_callbacks = callee

    def add_callback(self, callback: Callable[..., Any]) -> None:
        """Others may listen too."""
        first = self.fire_callbacks

        def both(*args: Any) -> None:
            first(*args)
            callback(*args)

        self.fire_callbacks = both


class Hooks:
    """Installs itself on creation; stays for the life of the process."""

    def __init__(self, detector: Detector, fresh: list[int]) -> None:
        self._detector = detector
        self.mode: SanitizeMode | None = None
        from torch.cuda import _gpu_trace

        calls: dict[str, Callable[..., Any]] = {
            "EventCreationCallbacks": operator.index, "EventDeletionCallbacks": detector.clocks.forget,
            "EventRecordCallbacks": self._record, "EventWaitCallbacks": self._wait, "EventSynchronizationCallbacks": self._event_done,
            "StreamCreationCallbacks": operator.index, "StreamSynchronizationCallbacks": self._stream_done,
            "DeviceSynchronizationCallbacks": self._all_done,
            "MemoryAllocationCallbacks": fresh.append, "MemoryDeallocationCallbacks": operator.index,
        }
        for name, callee in calls.items():
            if hasattr(_gpu_trace, name):
                setattr(_gpu_trace, name, _Direct(callee))
        torch._C._activate_gpu_trace()
        self._queries()
        self._host_reads()

    def stream(self, raw: int) -> int:
        """Our name of a raw stream: the default streams of all devices have the address 0."""
        return raw or -1 - torch._C._cuda_getDevice()

    def stream_of(self, device: int) -> int:
        """Our name of a device's current stream."""
        return torch._C._cuda_getCurrentRawStream(device) or -1 - device

    def _record(self, event: int, stream: int) -> None:
        self._detector.clocks.record(event, self.stream(stream))

    def _wait(self, event: int, stream: int) -> None:
        stream = self.stream(stream)
        detector = self._detector
        detector.clocks.wait(event, stream, detector.order)
        if self.mode is not None and self.mode.joining is not None:
            self.mode.joining.append((stream, detector.clocks.launch(stream)))

    def _event_done(self, event: int) -> None:
        self._detector.clocks.host_waits_for_event(event)
        self._waited()

    def _stream_done(self, stream: int) -> None:
        self._detector.clocks.host_waits_for_stream(self.stream(stream))
        self._waited()

    def _all_done(self) -> None:
        self._detector.all_is_done()
        self._waited()

    def _waited(self) -> None:
        if self.mode is not None:
            self.mode.waited()

    def _queries(self) -> None:
        """A query that answers yes is as good as a wait; torch does not trace those."""

        def of_event(original: Callable[..., Any]) -> Callable[..., Any]:
            def query(event: Any) -> bool:
                done = bool(original(event))
                if done:
                    self._event_done(event.cuda_event)
                return done

            return query

        def of_stream(original: Callable[..., Any]) -> Callable[..., Any]:
            def query(stream: Any) -> bool:
                done = bool(original(stream))
                if done:
                    self._stream_done(stream.cuda_stream)
                return done

            return query

        _replace(torch.cuda.Event, "query", of_event)
        _replace(torch.cuda.Stream, "query", of_stream)

        def external(original: Callable[..., Any]) -> Callable[..., Any]:
            def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
                made = original(cls, *args, **kwargs)
                self._detector.unsure.add(made.cuda_stream)
                return made

            return new

        _replace(torch.cuda.ExternalStream, "__new__", external)

    def _host_reads(self) -> None:
        """`numpy` and `tolist` read host memory without an operator; `record_stream` may be called where no mode is active."""

        def records(original: Callable[..., Any]) -> Callable[..., Any]:
            def record_stream(tensor: Any, stream: Any) -> None:
                if self.mode is not None:
                    self.mode.record_stream(tensor, stream)
                original(tensor, stream)

            return record_stream

        _replace(torch.Tensor, "record_stream", records)
        for name, now in (("numpy", False), ("tolist", True)):

            def make(original: Callable[..., Any], name: str = name, now: bool = now) -> Callable[..., Any]:
                def reads(tensor: Any, *args: Any, **kwargs: Any) -> Any:
                    if self.mode is not None:
                        self.mode.host_reads(tensor, name, now)
                    return original(tensor, *args, **kwargs)

                return reads

            _replace(torch.Tensor, name, make)


def _replace(owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        with contextlib.suppress(TypeError, AttributeError):
            setattr(owner, name, functools.wraps(original)(make(original)))
