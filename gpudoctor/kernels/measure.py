"""Gradient statistics for the probes: one pass of the kernel where plain torch operations need many.

Takes the place of a measure that works by torch operations, method by method, and leaves to it what the kernel does not do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gpudoctor.kernels import launch
from gpudoctor.kernels.layout import dense
from gpudoctor.kernels.variant import Level

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class KernelMeasure:
    """The measure `plain`, with norms, details, histograms and proofs of CUDA tensors by the kernel, one pass each.

    `everything` gives all of them from one pass. Nothing is remembered from call to call: collectives write to gradients
    without leaving a mark on the tensor.
    """

    def __init__(self, plain: Any, seed: int = 0) -> None:
        self.plain, self.seed = plain, seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def norms(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """L2 norm of each: float64, shape (n,)."""
        if not fits(tensors):
            return self.plain.norms(tensors)
        return self._pass(tensors, Level.statistics)[0][:, 0].sqrt()

    def details(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Mean, largest magnitude, zeros, non-finite and sum of each: float64, shape (n, 5)."""
        if not fits(tensors):
            return self.plain.details(tensors)
        return _details(tensors, self._pass(tensors, Level.statistics)[0])

    def histograms(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Counts of floor(log2|x|) + 40, clamped to 64 bins, zeros and non-finite left out: float64, shape (n, 64)."""
        if not fits(tensors):
            return self.plain.histograms(tensors)
        return self._pass(tensors, Level.histogram)[1].double()

    def everything(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Norms, details and histograms, as the three methods give them, from one pass where the kernel fits."""
        if not fits(tensors):
            return self.plain.norms(tensors), self.plain.details(tensors), self.plain.histograms(tensors)
        scalars, bins = self._pass(tensors, Level.histogram)
        return scalars[:, 0].sqrt(), _details(tensors, scalars), bins.double()

    def proof(self, flat: torch.Tensor) -> torch.Tensor:
        """Sum, ±1 sketch and squared norm of a 1-D tensor: float64, shape (3,). Sum and sketch are linear."""
        if not fits([flat]):
            return self.plain.proof(flat)
        row = self._pass([flat], Level.statistics)[0][0]
        return torch.stack((row[1], row[2], row[0]))

    def _pass(self, tensors: Sequence[torch.Tensor], level: Level) -> tuple[torch.Tensor, torch.Tensor]:
        return launch.run([[t.detach()] for t in tensors], None, seed=self.seed, level=level)


def _details(tensors: Sequence[torch.Tensor], scalars: torch.Tensor) -> torch.Tensor:
    sizes = torch.tensor([t.numel() for t in tensors], dtype=torch.float64)
    numel = sizes.pin_memory().to(scalars.device, non_blocking=True) if scalars.is_cuda else sizes
    total = scalars[:, 1]
    return torch.stack((total / numel, scalars[:, 3], scalars[:, 4], scalars[:, 5], total), 1)


def fits(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the kernel takes these: dense CUDA tensors of one card and one dtype."""
    if not tensors:
        return False
    first = tensors[0]
    return bool(first.is_cuda and first.dtype in DTYPES and all(t.dtype is first.dtype and t.device == first.device and dense(t) for t in tensors))
