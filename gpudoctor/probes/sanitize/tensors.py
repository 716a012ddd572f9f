"""Tensors of a call as bytes, and the call's place in the code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from gpudoctor.probes.sanitize.detector import Span
from gpudoctor.probes.sanitize.operators import Operator
from gpudoctor.probes.sanitize.races import Site
from gpudoctor.probes.sanitize.ranges import extent, is_dense

MAX_DEPTH = 14


@dataclass(slots=True)
class Touched:
    """Tensors of one call: on a card, read and written; on the host, with whether they are written."""

    read: list[torch.Tensor]
    written: list[torch.Tensor]
    host: list[tuple[torch.Tensor, bool]]
    non_blocking: bool

    def add(self, tensor: torch.Tensor, on_device: bool, read: bool, written: bool) -> None:
        if not on_device:
            self.host.append((tensor, written))
        elif written:
            self.written.append(tensor)
        elif read:
            self.read.append(tensor)


def raw_stream(stream: Any) -> int:
    """Our name of a `torch.Stream`, whose own number is not CUDA's."""
    raw = getattr(stream, "cuda_stream", None)
    if raw is None:
        raw = torch.cuda.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type).cuda_stream
    return raw or -1 - int(stream.device_index)


def walk(frame: FrameType | None) -> Site:
    """Code and offset of each frame, innermost first; lines are looked up only if it is reported."""
    parts: list[Any] = []
    for _ in range(MAX_DEPTH):
        if frame is None:
            break
        parts += frame.f_code, frame.f_lasti
        frame = frame.f_back
    return tuple(parts)


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """The tensors of an argument: itself, or those of a list, or of a list of lists."""
    if isinstance(value, torch.Tensor):
        return (value,)
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in (v if isinstance(v, (list, tuple)) else (v,)) if isinstance(t, torch.Tensor)]
    return ()


def span_of(tensor: torch.Tensor) -> Span:
    """The bytes of a tensor; its shape too where it has gaps."""
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes, None
    sizes, strides, width = tuple(tensor.shape), tensor.stride(), tensor.element_size()
    end = extent(start, sizes, strides, width)
    return (start, end, None) if is_dense(sizes, strides) else (start, end, (start, sizes, strides, width))


def base_of(tensor: torch.Tensor) -> int:
    """The first byte of its storage."""
    return int(tensor.untyped_storage().data_ptr())


def is_non_blocking(operator: Operator, args: Any, kwargs: Any) -> bool:
    """Was a copy called with `non_blocking`?"""
    if "non_blocking" in kwargs:
        return bool(kwargs["non_blocking"])
    n = operator.position.get("non_blocking", -1)
    return 0 <= n < len(args) and bool(args[n])
