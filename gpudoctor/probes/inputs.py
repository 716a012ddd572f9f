"""What a model is given: its tensors, how many samples, and a fingerprint that tells batches apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

SAMPLED = 4096


def tensors(value: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """Tensors inside lists, tuples, mappings and data classes, in a fixed order, to a small depth."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4 and isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        for item in value.values():
            yield from tensors(item, depth + 1)
    elif depth < 4 and hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors(getattr(value, name, None), depth + 1)


def batch_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Leading dimension of the first tensor that has one; 0 if there is none."""
    for tensor in tensors((args, kwargs)):
        if tensor.dim():
            return int(tensor.shape[0])
    return 0


def fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    """A number (float64, shape (1,), same device) from at most `SAMPLED` evenly spread elements and their places."""
    tensor = tensor.detach()
    flat = (tensor if tensor.is_contiguous() or tensor.numel() <= SAMPLED else tensor.select(-1, 0)).reshape(-1)
    if flat.numel() > SAMPLED:
        flat = flat[:: flat.numel() // SAMPLED]
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    values = flat.to(torch.float64)
    places = torch.arange(1, values.numel() + 1, dtype=torch.float64, device=values.device)
    return (values * torch.sin(places)).sum().reshape(1)
