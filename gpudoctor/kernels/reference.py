"""What the kernels must say, in double precision and plain PyTorch; also the CPU's implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

BINS = 64
LOWEST = 87
"""Raw fp32 exponent of bin 0: 2^-40 and everything below; bin 63 is 2^23 and above."""
SCALARS = ("norm2", "sum", "sketch", "absmax", "zeros", "nonfinite")
_CHUNK = 1 << 22


def combine(inputs: Sequence[torch.Tensor], scale: float) -> torch.Tensor:
    """`scale * sum(inputs)` in float64, in the order given."""
    total = inputs[0].double()
    for other in inputs[1:]:
        total = total + other.double()
    return total * scale


def describe(tensor: torch.Tensor, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Statistics of `tensor` as stored: float64 [6] in the order of SCALARS, int64 [64] histogram of floor(log2|x|) + 40.

    norm2, sum and sketch are NaN or infinite if an element is; absmax leaves NaN out. Zeros and non-finite elements
    are in no bin.
    """
    flat = tensor.detach().reshape(-1)
    scalars = torch.zeros(len(SCALARS), dtype=torch.float64, device=tensor.device)
    exponents = torch.zeros(256, dtype=torch.int64, device=tensor.device)
    for begin in range(0, flat.numel(), _CHUNK):
        part = flat[begin : begin + _CHUNK]
        wide = part.double()
        magnitude = wide.abs().nan_to_num(nan=0.0, posinf=torch.inf)
        absmax = torch.maximum(scalars[3], magnitude.max())
        scalars += torch.stack([
            wide.square().sum(), wide.sum(), (wide * signs(begin, part.numel(), seed, tensor.device)).sum(), wide.new_zeros(()),
            (wide == 0).sum().double(), (~wide.isfinite()).sum().double(),
        ])
        scalars[3] = absmax
        exponents += torch.bincount(part.float().view(torch.int32).bitwise_right_shift(23).bitwise_and(255), minlength=256)
    bins = exponents[LOWEST : LOWEST + BINS].clone()
    bins[0] = exponents[: LOWEST + 1].sum() - scalars[4].long()
    bins[-1] = exponents[LOWEST + BINS - 1 : 255].sum()
    return scalars, bins


def signs(begin: int, count: int, seed: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """The ±1 of elements `begin … begin + count - 1`: float64 [count], a function of index and seed alone.

    Signs alternate inside a group of eight neighbours; the group's own sign is a random bit.
    """
    first = begin // 8
    group = torch.arange(first, (begin + count + 7) // 8, device=device)
    words = _mixed(((((group >> 12) & 0xFFFFFFFF) << 7 | (group & 127)) & 0xFFFFFFFF) ^ key_of(seed))
    bits = (words >> ((group >> 7) & 31))[:, None] + torch.arange(8, device=device) & 1
    return (1 - 2 * bits.reshape(-1)[begin - 8 * first :][:count]).double()


def key_of(seed: int) -> int:
    """The 32-bit key that the kernels take for `seed`."""
    return int(_mixed((seed * 0x9E3779B9 + 1) & 0xFFFFFFFF))


def _mixed(x: Any) -> Any:
    """Murmur3's finaliser on 32-bit values, held in an int or an int64 tensor."""
    x = x ^ (x >> 16)
    x = (x * 0x85EBCA6B) & 0xFFFFFFFF
    x = x ^ (x >> 13)
    x = (x * 0xC2B2AE35) & 0xFFFFFFFF
    return x ^ (x >> 16)
