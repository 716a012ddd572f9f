"""The arithmetic over gradients and parameters: on their device, without synchronising it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

BINS = 64
LOWEST = -40
ROW = 1024
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_SEED = 20_261_202


class Measure:
    """Statistics of tensors by plain torch operations; a kernel may take its place, method by method.

    Every method returns a tensor on the device of its input and never waits for it.
    """

    def __init__(self) -> None:
        self._signs: dict[tuple[torch.device, torch.dtype], tuple[torch.Tensor, torch.Tensor]] = {}

    def norms(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """L2 norm of each: float64, shape (n,)."""
        kinds = {t.dtype for t in tensors}
        wide = None if kinds <= {torch.float32} or kinds <= {torch.float64} else torch.float64 if torch.float64 in kinds else torch.float32
        return _together(torch._foreach_norm(list(tensors), 2, dtype=wide)).to(torch.float64)

    def details(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Mean, largest magnitude, zeros, non-finite and sum of each: float64, shape (n, 5)."""
        rows = []
        for tensor in tensors:
            flat = tensor.detach().reshape(-1)
            total = flat.sum(dtype=torch.float64)
            low, high = torch.aminmax(flat)
            zeros = flat.numel() - torch.count_nonzero(flat).to(torch.float64)
            bad = flat.numel() - torch.isfinite(flat).sum(dtype=torch.float64)
            absmax = torch.maximum(-low, high).to(torch.float64)
            rows.append(torch.stack((total / flat.numel(), absmax, zeros, bad, total)))
        return _together(rows)

    def histograms(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """Counts of floor(log2|x|) - `LOWEST`, clamped to 64 bins, zeros and non-finite left out: float64, shape (n, 64)."""
        rows = []
        for tensor in tensors:
            flat = tensor.detach().reshape(-1)
            power = torch.frexp(flat.float().abs())[1].float() - 1
            power = power.clamp_(LOWEST, LOWEST + BINS - 1)
            counts = torch.histc(power, BINS, LOWEST - 0.5, LOWEST + BINS - 0.5).to(torch.float64)
            skipped = (flat == 0).sum() + (~torch.isfinite(flat)).sum()
            counts[-1 - LOWEST] -= skipped
            rows.append(counts.clamp_(min=0))
        return _together(rows)

    def everything(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Norms, details and histograms of each."""
        return self.norms(tensors), self.details(tensors), self.histograms(tensors)

    def proof(self, flat: torch.Tensor) -> torch.Tensor:
        """Sum, ±1 sketch and squared norm of a 1-D tensor: float64, shape (3,). Sum and sketch are linear."""
        flat = flat.detach()
        if flat.dtype in (torch.float16, torch.bfloat16):
            flat = flat.float()
        rows, tail = flat.numel() // ROW, flat.numel() % ROW
        inner, outer = self._sign_vectors(flat, rows + 1)
        parts = []
        if rows:
            parts.append(torch.mv(flat[: rows * ROW].view(rows, ROW), inner).to(torch.float64).mul_(outer[:rows]).sum())
        if tail:
            parts.append(torch.dot(flat[rows * ROW :], inner[:tail]).to(torch.float64) * outer[rows])
        sketch = parts[0] if len(parts) == 1 else torch.stack(parts).sum() if parts else flat.sum(dtype=torch.float64)
        return torch.stack((flat.sum().to(torch.float64), sketch, torch.dot(flat, flat).to(torch.float64)))

    def checksum(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        """An exact checksum of all bits: int64, shape (1,); each tensor counts by its place, wrapping at 2^64."""
        sums = [_bits(t) for t in tensors]
        if not sums:
            return torch.zeros(1, dtype=torch.int64)
        stacked = _together(sums)
        weights = torch.arange(1, 2 * len(sums), 2, dtype=torch.int64, device=stacked.device)
        return (stacked * weights).sum().reshape(1)

    def _sign_vectors(self, flat: torch.Tensor, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        key = flat.device, flat.dtype
        known = self._signs.get(key)
        if known is None or known[1].numel() < rows:
            generator = torch.Generator().manual_seed(_SEED)
            inner = torch.randint(0, 2, (ROW,), generator=generator).mul_(2).sub_(1)
            size = 1 << max(10, (rows - 1).bit_length())
            outer = torch.randint(0, 2, (size,), generator=generator).mul_(2).sub_(1)
            known = inner.to(flat.device, flat.dtype), outer.to(flat.device, torch.float64)
            self._signs[key] = known
        return known


def _together(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Stack small tensors on the device of the first, for models that are spread over several."""
    home = values[0].device
    return torch.stack([v if v.device == home else v.to(home, non_blocking=True) for v in values])


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.dtype == torch.bool:
        return flat.sum(dtype=torch.int64)
    size = flat.element_size()
    per = 8 // size
    whole = flat.numel() // per * per
    if flat.storage_offset() % per:
        flat = flat.clone()
    total = flat[:whole].view(torch.int64).sum() if whole else flat.new_zeros((), dtype=torch.int64)
    return total if whole == flat.numel() else total + _as_ints(flat[whole:]).sum(dtype=torch.int64)


def _as_ints(flat: torch.Tensor) -> torch.Tensor:
    return flat.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()])
