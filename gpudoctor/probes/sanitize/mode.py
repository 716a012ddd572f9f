"""Sees every operator of the user's code and tells the detector which bytes it touches, on which stream, from where."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpudoctor.probes.sanitize.detector import Detector, Span
from gpudoctor.probes.sanitize.operators import Operator, describe
from gpudoctor.probes.sanitize.races import Access, Site
from gpudoctor.probes.sanitize.ranges import extent, is_dense

MAX_DEPTH = 24

_getframe = sys._getframe
_graph_task = torch._C._current_graph_task_id
_Tensor = torch.Tensor


class SanitizeMode(TorchDispatchMode):
    """Active inside `with`, in this thread and in the autograd threads that it starts.

    `stream_of(device)` names the current stream, `fresh` is filled by the allocator's hook, `muted()` is true while
    the doctor itself computes, `on_device(tensor)` is true for memory of a card.
    """

    supports_higher_order_operators = True

    def __init__(
        self, detector: Detector, stream_of: Callable[[int], int], fresh: list[int], muted: Callable[[], bool],
        on_device: Callable[[torch.Tensor], bool] = lambda tensor: tensor.is_cuda,
    ) -> None:
        super().__init__()
        self._detector, self._stream_of, self._fresh, self._muted, self._on_device = detector, stream_of, fresh, muted, on_device
        self._operators: dict[Any, Operator] = {}
        self._main = threading.main_thread().ident or 0
        self._backward: tuple[int, Site] = (-1, ())
        self._watched: list[tuple[Access, Span, Site]] = []
        self.joining: list[tuple[int, int]] | None = None
        self.on_capture: Callable[[int], bool] = lambda stream: False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types:
            return NotImplemented
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = describe(func)
        if operator.skip or self._muted():
            return func(*args, **kwargs) if kwargs else func(*args)
        if func is torch.ops.aten.record_stream.default:
            self._record_stream(args[0], args[1])
            return func(*args)
        return self._see(func, operator, args, kwargs or {})

    def _see(self, func: Any, operator: Operator, args: Any, kwargs: Any) -> Any:
        detector, on_device = self._detector, self._on_device
        if self._watched:
            self._settle()
        read: list[torch.Tensor] = []
        written: list[torch.Tensor] = []
        host: list[tuple[torch.Tensor, bool]] = []
        for n, value in enumerate(args):
            if isinstance(value, (_Tensor, list, tuple)):
                for tensor in _tensors(value):
                    if on_device(tensor):
                        if operator.written[n]:
                            written.append(tensor)
                        elif operator.read[n]:
                            read.append(tensor)
                    else:
                        host.append((tensor, operator.written[n]))
        for name, value in kwargs.items():
            if isinstance(value, (_Tensor, list, tuple)):
                n = operator.position[name]
                for tensor in _tensors(value):
                    if on_device(tensor):
                        (written if operator.written[n] else read).append(tensor)
                    else:
                        host.append((tensor, operator.written[n]))
        non_blocking = operator.copies and _non_blocking(operator, args, kwargs)
        if host and detector.host_is_shared and not (non_blocking and (read or written)):
            self._host(operator.name, host)
        if operator.collective:
            return self._collective(func, operator, args, kwargs, read, written)
        result = func(*args, **kwargs)
        crosses = bool(host)
        if operator.fresh:
            for tensor in _tensors(result) if isinstance(result, (_Tensor, list, tuple)) else ():
                if on_device(tensor):
                    written.append(tensor)
                elif operator.copies:
                    host.append((tensor, True))
                    crosses = True
        if read or written:
            site = self._site(_getframe(2))
            stream = self._launch(operator.name, read, written, site)
            if non_blocking and crosses and stream is not None:
                for tensor, is_written in host:
                    if tensor.is_pinned():
                        detector.copies_host(stream, _span(tensor), operator.name, is_written, site)
        return result

    def _launch(self, name: str, read: list[torch.Tensor], written: list[torch.Tensor], site: Site) -> int | None:
        detector = self._detector
        self._take_fresh()
        stream = self._stream_of((written or read)[0].get_device())
        if self.on_capture(stream):
            return None
        spans_w = [_span(t) for t in written]
        starts = {s[0] for s in spans_w}
        spans_r = [s for s in map(_span, read) if s[0] not in starts]
        bases: tuple[int, ...] = ()
        if len(detector.clocks.position) > 1:
            bases = (*(_base(t) for t, s in zip(read, map(_span, read), strict=True) if s[0] not in starts), *map(_base, written))
        detector.launch(stream, name, spans_r, spans_w, site, bases)
        return stream

    def _collective(self, func: Any, operator: Operator, args: Any, kwargs: Any, read: list[torch.Tensor], written: list[torch.Tensor]) -> Any:
        """A collective runs on the stream that was made to wait during the call, or on the current one."""
        site = self._site(_getframe(3))
        detector = self._detector
        self._take_fresh()
        self.joining = []
        try:
            result = func(*args, **kwargs)
        finally:
            joined, self.joining = self.joining, None
        if operator.fresh:
            written += [t for t in _tensors(result if isinstance(result, (_Tensor, list, tuple)) else ()) if self._on_device(t)]
        if not (read or written):
            return result
        self._take_fresh()
        spans_r, spans_w = [_span(t) for t in read], [_span(t) for t in written]
        bases = (*map(_base, read), *map(_base, written))
        if joined:
            stream, position = joined[-1]
            detector.order += 1
            detector.touch(stream, position, operator.name, spans_r, spans_w, site, bases)
        else:
            stream = self._stream_of((written or read)[0].get_device())
            detector.launch(stream, operator.name, spans_r, spans_w, site, bases)
        for span in (*spans_r, *spans_w):
            detector.record_stream(span[0], span[1], stream)
        return result

    def _host(self, name: str, tensors: list[tuple[torch.Tensor, bool]]) -> None:
        """The host's own operator touches memory that a copy in flight may be using."""
        site: Site | None = None
        for tensor, is_written in tensors:
            span = _span(tensor)
            first = self._detector.in_flight(span, is_written)
            if first is not None:
                site = site or self._site(_getframe(3))
                self._detector.host_raced(first, span, name, is_written, site)

    def host_reads(self, tensor: torch.Tensor, name: str, now: bool) -> None:
        """The host reads a tensor without an operator; unless `now`, the reading may come after a later wait."""
        if self._muted() or not self._detector.host_is_shared or self._on_device(tensor):
            return
        span = _span(tensor)
        first = self._detector.in_flight(span, False)
        if first is not None:
            site = self._site(_getframe(2))
            if now:
                self._detector.host_raced(first, span, name, False, site)
            else:
                self._watched.append((first, span, site))

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

    def _record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        if self._on_device(tensor):
            base = _base(tensor)
            raw = getattr(stream, "cuda_stream", None)
            if raw is None:
                raw = getattr(stream, "stream_id", 0)
            device = tensor.get_device()
            self._detector.record_stream(base, base + tensor.untyped_storage().nbytes(), raw or -1 - device)

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
                self._backward = task, _walk(sys._current_frames().get(self._main))
            return (name, *_walk(frame), *self._backward[1])
        return _walk(frame)


def _walk(frame: FrameType | None) -> Site:
    parts: list[Any] = []
    add = parts.append
    depth = 0
    while frame is not None and depth < MAX_DEPTH:
        add(frame.f_code)
        add(frame.f_lasti)
        frame = frame.f_back
        depth += 1
    return tuple(parts)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, _Tensor):
        return (value,)
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(t, _Tensor)]
    return ()


def _span(tensor: torch.Tensor) -> Span:
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes, None
    sizes, strides, width = tuple(tensor.shape), tensor.stride(), tensor.element_size()
    end = extent(start, sizes, strides, width)
    return (start, end, None) if is_dense(sizes, strides) else (start, end, (start, sizes, strides, width))


def _base(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _non_blocking(operator: Operator, args: Any, kwargs: Any) -> bool:
    if "non_blocking" in kwargs:
        return bool(kwargs["non_blocking"])
    n = operator.position.get("non_blocking", -1)
    return 0 <= n < len(args) and bool(args[n])
