"""What a training step would hold in memory, measured on the meta device: nothing is allocated, every tensor is counted."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_BLOCK = 512  # the caching allocator rounds every request up to this
_CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)


class MetaMemory(TorchDispatchMode):  # type: ignore[misc]
    """Counts live meta storages as CUDA's caching allocator would: `live` now, `peak` at most [B]."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._seen: set[int] = set()

    def add(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count tensors that were made before this mode began."""
        for tensor in tensors:
            self._count(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return 1.0 if args[0].dtype.is_floating_point else 1  # a stand-in: meta tensors hold no value
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self._count(leaf)
        if func in _CONVOLUTIONS:
            self.peak = max(self.peak, self.live + _workspace(args, out))
        return out

    def _count(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "meta":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._seen:
            return
        size = -(-storage.nbytes() // _BLOCK) * _BLOCK
        self._seen.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._seen.discard(key)
        self.live -= size


def _workspace(args: Any, out: Any) -> int:
    """What cuDNN takes to turn a convolution's images from NCHW, which tensor cores do not read, into NHWC and back."""
    images = [args[0], args[1]] if isinstance(out, tuple) else [args[0], out]
    if any(i.dim() != 4 or i.is_contiguous(memory_format=torch.channels_last) for i in images):
        return 0
    return sum(int(i.nbytes) for i in images)


@contextlib.contextmanager
def card_kernels() -> Iterator[None]:
    """Within it attention and dropout take the fused kernels of a CUDA card; the meta device would pick others."""
    functional = torch.nn.functional
    attention, dropout = functional.scaled_dot_product_attention, functional.dropout
    functional.scaled_dot_product_attention, functional.dropout = _fused, _dropout
    try:
        yield
    finally:
        functional.scaled_dot_product_attention, functional.dropout = attention, dropout


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def _fused(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    if query.dim() != 4:
        return torch.ops.aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale)[0]
    if attn_mask is None and query.dtype in (torch.bfloat16, torch.float16) and query.shape[-1] <= 256:
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:-1], key.shape[-2])
        if attn_mask.dtype is torch.bool:
            attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(attn_mask.logical_not(), float("-inf"))
    return torch.ops.aten._scaled_dot_product_efficient_attention(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
