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
    """The measure `plain`, with norms, details and histograms of CUDA tensors by the kernel, one pass for all.

    Proofs stay with `plain`: their signs must be the same on every rank, also on one that has no kernel. Should the
    kernel fail, `plain` takes over for good and `failure` says why. Nothing is remembered from call to call: collectives
    write to gradients without leaving a mark on the tensor.
    """

    def __init__(self, plain: Any, seed: int = 0) -> None:
        self.plain, self.seed = plain, seed
        self.failure = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def norms(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """L2 norm of each: float64, shape (n,)."""
        passed = self._pass(tensors, Level.statistics)
        return passed[0][:, 0].sqrt() if passed else self.plain.norms(tensors)

    def everything(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Norms, details and histograms, as `plain` gives them, from one pass where the kernel fits."""
        passed = self._pass(tensors, Level.histogram)
        if passed is None:
            return self.plain.everything(tensors)  # type: ignore[no-any-return]
        scalars, bins = passed
        return scalars[:, 0].sqrt(), _details(tensors, scalars), bins.double()

    def _pass(self, tensors: Sequence[torch.Tensor], level: Level) -> tuple[torch.Tensor, torch.Tensor] | None:
        if self.failure or not fits(tensors):
            return None
        try:
            return launch.run([[t.detach()] for t in tensors], None, seed=self.seed, level=level)
        except Exception as error:  # no NVRTC, no machine code for this card: the run goes on without
            self.failure = f"{type(error).__name__}: {error}"
            return None


def _details(tensors: Sequence[torch.Tensor], scalars: torch.Tensor) -> torch.Tensor:
    sizes = torch.tensor([t.numel() for t in tensors], dtype=torch.float64)
    numel = sizes.pin_memory().to(scalars.device, non_blocking=True) if scalars.is_cuda else sizes
    total = scalars[:, 1]
    return torch.stack((total / numel, scalars[:, 3], scalars[:, 4], scalars[:, 5], total), 1)


def fits(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the kernel takes these: dense CUDA tensors of one card and one dtype, outside the capture of a graph."""
    if not tensors:
        return False
    first = tensors[0]
    return bool(first.is_cuda and first.dtype in DTYPES and not torch.cuda.is_current_stream_capturing() and all(t.dtype is first.dtype and t.device == first.device and dense(t) for t in tensors))
