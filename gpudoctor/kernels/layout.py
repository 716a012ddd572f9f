"""How a tensor lies in memory."""

from __future__ import annotations

import torch


def dense(tensor: torch.Tensor) -> bool:
    """Whether the tensor's elements fill one stretch of memory."""
    return bool(tensor.is_contiguous() or (tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)))
