"""Sees every operator of the user's code and tells the detector which bytes it touches, on which stream, from where."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from gpudoctor.probes.sanitize.detector import Detector, Span
from gpudoctor.probes.sanitize.operators import Operator, describe
from gpudoctor.probes.sanitize.races import Access, Site
from gpudoctor.probes.sanitize.tensors import (
    Touched,
    base_of,
    is_non_blocking,
    raw_stream,
    span_of,
    tensors_in,
    walk,
)

_getframe = sys._getframe
_graph_task = torch._C._current_graph_task_id
_Tensor = torch.Tensor
_PLAIN = torch.Tensor.__torch_dispatch__


class SanitizeMode(TorchDispatchMode):  # type: ignore[misc]
    """Active inside `with`, in this thread and in the autograd threads that it starts.

    `stream_of(device)` names the current stream, `fresh` is filled by the allocator's hook, `muted()` is true while
    the doctor itself computes, `on_device(tensor)` is true for memory of a card, `is_pinned` for pinned memory.
    """

    supports_higher_order_operators = True

    def __init__(
        self, detector: Detector, stream_of: Callable[[int], int], fresh: list[int], muted: Callable[[], bool],
        on_device: Callable[[torch.Tensor], bool] = lambda tensor: tensor.is_cuda,
        is_pinned: Callable[[torch.Tensor], bool] = lambda tensor: tensor.is_pinned(),
    ) -> None:
        super().__init__()
        self._is_pinned = is_pinned
        self._buffers: dict[Span, StorageWeakRef] = {}
        self._detector, self._stream_of, self._fresh, self._muted, self._on_device = detector, stream_of, fresh, muted, on_device
        self._operators: dict[Any, Operator] = {}
        self._main = threading.main_thread().ident or 0
        self._backward: tuple[int, Site] = (-1, ())
        self._watched: list[tuple[Access, Span, Site]] = []
        self.joining: list[tuple[int, int]] | None = None
        self.off = False
        self.failures, self.failure = 0, ""
        self._current: tuple[Any, ...] = ()
        detector.base_of = self._base_of
        self.on_capture: Callable[[int], bool] = lambda stream: False
        self._raw: Callable[[Any], int] = raw_stream

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types and any(t.__torch_dispatch__ is not _PLAIN for t in types):
            return NotImplemented
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = describe(func)
        if operator.skip or self.off or self._muted():
            return func(*args, **kwargs) if kwargs else func(*args)
        frame = _getframe().f_back
        if not operator.plain:
            return self._see(func, operator, args, kwargs or {}, frame)
        result = func(*args, **kwargs) if kwargs else func(*args)
        try:
            if self._watched:
                self._settle()
            self._look(operator, args, kwargs, result, frame)
        except Exception as error:
            self._failed(error)
        return result

    def _look(self, operator: Operator, args: Any, kwargs: Any, result: Any, frame: FrameType | None) -> None:
        """The short way, for operators that stay on one device: nearly all. Spelled out, since it runs for each of them."""
        on_device = self._on_device
        read: list[Span] = []
        written: list[Span] = []
        device: int | None = None
        host = False
        if kwargs:
            args = list(args) + [None] * (len(operator.position) - len(args))
            for name, value in kwargs.items():
                args[operator.position[name]] = value
        for value, is_read, is_written in zip(args, operator.read, operator.written, strict=False):
            if isinstance(value, _Tensor):
                if device is None:
                    if not on_device(value):
                        host = True
                        continue
                    device = value.get_device()
                if is_written or is_read:
                    start = value.data_ptr()
                    (written if is_written else read).append((start, start + value.nbytes, None) if value.is_contiguous() else span_of(value))
            elif isinstance(value, (list, tuple)):
                for tensor in tensors_in(value):
                    if on_device(tensor):
                        (written if is_written else read).append(span_of(tensor))
                        device = tensor.get_device()
                    else:
                        host = True
        if host and self._detector.host_is_shared:
            self._host(operator.name, [(t, w) for v, w in zip(args, operator.written, strict=False) for t in tensors_in(v) if not on_device(t)], frame)
        if operator.fresh:
            starts = {s[0] for s in read}
            for tensor in (result,) if isinstance(result, _Tensor) else tensors_in(result):
                if device is None:
                    if not on_device(tensor):
                        continue
                    device = tensor.get_device()
                start = tensor.data_ptr()
                if start not in starts:
                    written.append((start, start + tensor.nbytes, None) if tensor.is_contiguous() else span_of(tensor))
        if device is None:
            return
        detector = self._detector
        if self._fresh:
            self._take_fresh()
        stream = self._stream_of(device)
        if stream > 0 and self.on_capture(stream):
            return
        self._current = args, result
        detector.launch(stream, operator.name, read, written, walk(frame) if _graph_task() == -1 else self._site(frame))
        self._current = ()

    def _see(self, func: Any, operator: Operator, args: Any, kwargs: Any, frame: FrameType | None) -> Any:
        """The long way, for copies, collectives and `record_stream`; our own errors never reach the user."""
        try:
            if operator.name == "record_stream":
                self.record_stream(args[0], args[1])
                return func(*args, **kwargs)
            touched = self._before(operator, args, kwargs, frame)
            self.joining = [] if operator.collective else None
        except Exception as error:
            self._failed(error)
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        try:
            self._after(operator, touched, result, frame)
        except Exception as error:
            self._failed(error)
        return result

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.failure = self.failure or f"{type(error).__name__}: {error}"

    def _before(self, operator: Operator, args: Any, kwargs: Any, frame: FrameType | None) -> Touched:
        if self._watched:
            self._settle()
        on_device = self._on_device
        touched = Touched([], [], [], False)
        for n, value in enumerate(args):
            if isinstance(value, (_Tensor, list, tuple)):
                for tensor in tensors_in(value):
                    touched.add(tensor, on_device(tensor), operator.read[n], operator.written[n])
        for name, value in kwargs.items():
            if isinstance(value, (_Tensor, list, tuple)):
                n = operator.position[name]
                for tensor in tensors_in(value):
                    touched.add(tensor, on_device(tensor), operator.read[n], operator.written[n])
        touched.non_blocking = operator.copies and is_non_blocking(operator, args, kwargs)
        if touched.host and self._detector.host_is_shared and not (touched.non_blocking and (touched.read or touched.written)):
            self._host(operator.name, touched.host, frame)
        return touched

    def _after(self, operator: Operator, touched: Touched, result: Any, frame: FrameType | None) -> None:
        if operator.fresh and isinstance(result, (_Tensor, list, tuple)):
            for tensor in tensors_in(result):
                if self._on_device(tensor):
                    touched.written.append(tensor)
                elif operator.copies:
                    touched.host.append((tensor, True))
        joined, self.joining = self.joining, None
        if not (touched.read or touched.written):
            return
        site = self._site(frame)
        if operator.collective:
            self._collective(operator.name, touched, site, joined)
            return
        self._current = touched.read, touched.written
        stream = self._launch(operator.name, touched.read, touched.written, site)
        self._current = ()
        if touched.non_blocking and stream is not None:
            for tensor, is_written in touched.host:
                if self._is_pinned(tensor):
                    span = span_of(tensor)
                    self._buffers[span] = StorageWeakRef(tensor.untyped_storage())
                    self._detector.copies_host(stream, span, operator.name, is_written, site)

    def _launch(self, name: str, read: list[torch.Tensor], written: list[torch.Tensor], site: Site) -> int | None:
        self._take_fresh()
        stream = self._stream_of((written or read)[0].get_device())
        if self.on_capture(stream):
            return None
        spans = [span_of(t) for t in read]
        starts = {s[0] for s in spans}
        self._detector.launch(stream, name, spans, [s for s in map(span_of, written) if s[0] not in starts or not spans], site)
        return stream

    def _collective(self, name: str, touched: Touched, site: Site, joined: list[tuple[int, int]] | None) -> None:
        """A collective ran on the stream that was made to wait during the call, or on the current one."""
        detector = self._detector
        self._take_fresh()
        read, written = touched.read, touched.written
        spans_r, spans_w = [span_of(t) for t in read], [span_of(t) for t in written]
        self._current = read, written
        if joined:
            stream, position = joined[-1]
            detector.order += 1
            detector.touch(stream, position, name, spans_r, spans_w, site)
        else:
            stream = self._stream_of((written or read)[0].get_device())
            detector.launch(stream, name, spans_r, spans_w, site)
        self._current = ()
        for span in (*spans_r, *spans_w):
            detector.record_stream(span[0], span[1], stream)

    def _host(self, name: str, tensors: list[tuple[torch.Tensor, bool]], frame: FrameType | None) -> None:
        """The host's own operator touches memory that a copy in flight may be using."""
        self._drop_dead_buffers()
        for tensor, is_written in tensors:
            span = span_of(tensor)
            first = self._detector.in_flight(span, is_written)
            if first is not None:
                self._detector.host_raced(first, span, name, is_written, self._site(frame))

    def host_reads(self, tensor: torch.Tensor, name: str, now: bool) -> None:
        """The host reads a tensor without an operator; unless `now`, the reading may come after a later wait."""
        if self._muted() or not self._detector.host_is_shared or self._on_device(tensor):
            return
        self._drop_dead_buffers()
        span = span_of(tensor)
        first = self._detector.in_flight(span, False)
        if first is not None:
            site = self._site(_getframe())
            if now:
                self._detector.host_raced(first, span, name, False, site)
            else:
                self._watched.append((first, span, site))

    def _drop_dead_buffers(self) -> None:
        """A freed pinned buffer is handed out again only once its copies are done."""
        for span in [s for s, storage in self._buffers.items() if storage.expired()]:
            del self._buffers[span]
            self._detector.forget_host(span)

    def settle(self) -> None:
        """Judge the views that the host took of memory in flight: has it waited since?"""
        if self._watched:
            self._settle()

    def _settle(self) -> None:
        watched, self._watched = self._watched, []
        for first, span, site in watched:
            if not self._detector.is_done(first):
                self._detector.host_raced(first, span, "numpy", False, site)

    def waited(self) -> None:
        """The host has waited for something: views of what is done now were taken in good time."""
        self._watched = [w for w in self._watched if not self._detector.is_done(w[0])]

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        """The allocator was told that `stream` uses a tensor."""
        if self._on_device(tensor):
            base = base_of(tensor)
            self._detector.record_stream(base, base + tensor.untyped_storage().nbytes(), self._raw(stream))

    def _base_of(self, address: int) -> int:
        """The first byte of the storage of the tensor at `address` in the call at hand."""
        for part in self._current:
            for tensor in tensors_in(part):
                if tensor.data_ptr() == address:
                    return base_of(tensor)
        return address

    def _take_fresh(self) -> None:
        if self._fresh:
            self._detector.allocated(self._fresh)
            self._fresh.clear()

    def _site(self, frame: FrameType | None) -> Site:
        """Where we are: code and offset of each frame; in a backward thread the node and the line that called backward."""
        task = _graph_task()
        if task != -1:
            node = torch._C._current_autograd_node()
            name = node.name() if node is not None else "graph"
            if self._backward[0] != task:
                self._backward = task, walk(sys._current_frames().get(self._main))
            return (name, *walk(frame), *self._backward[1])
        return walk(frame)
