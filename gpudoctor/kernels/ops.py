"""PyTorch operators `torch.ops.gpudoctor.*`: CUDA by our kernels, every other device by the double-precision reference.

    aggregate(inputs, scale, seed)          -> (out, scalars, bins)      differentiable in `inputs`
    aggregate_(outs, inputs, scale, seed)   -> (scalars, bins)           in place; copies of outs[0] first, then of outs[1] …
    statistics(tensors, seed)               -> (scalars, bins)

`scalars` is float64 [T, 6] (norm2, sum, sketch, absmax, zeros, nonfinite), `bins` int64 [T, 64]; both stay on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gpudoctor.kernels import reference
from gpudoctor.kernels.layout import dense

Pair = tuple[torch.Tensor, torch.Tensor]


def _aggregate(inputs: Sequence[torch.Tensor], scale: float, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dense = _alike(inputs)
    out = torch.empty_like(dense[0])
    return (out, *_run([dense], [out], scale, seed))


def _aggregate_(outs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], scale: float, seed: int) -> Pair:
    copies = len(inputs) // max(1, len(outs))
    if not outs or copies * len(outs) != len(inputs) or not copies:
        raise ValueError(f"{len(inputs)} inputs cannot be shared out among {len(outs)} outputs")
    return _run([inputs[n * copies : (n + 1) * copies] for n in range(len(outs))], outs, scale, seed)


def _statistics(tensors: Sequence[torch.Tensor], seed: int) -> Pair:
    if not tensors:
        return _fake_rows(torch.empty(0), 0)
    return _run([_alike([t]) for t in tensors], None, 1.0, seed)


def _run(inputs: Sequence[Sequence[torch.Tensor]], outs: Sequence[torch.Tensor] | None, scale: float, seed: int) -> Pair:
    if inputs[0][0].is_cuda:
        from gpudoctor.kernels import launch

        return launch.run(inputs, outs, scale, seed=seed, deterministic=torch.are_deterministic_algorithms_enabled())
    rows = []
    for n, copies in enumerate(inputs):
        stored = reference.combine(copies, scale).to(copies[0].dtype) if outs is not None or scale != 1.0 else copies[0]
        if outs is not None:
            outs[n].copy_(stored)
        rows.append(reference.describe(stored, seed))
    return torch.stack([scalars for scalars, _ in rows]), torch.stack([bins for _, bins in rows])


def _alike(copies: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """All copies dense and in one layout."""
    alike = all(t.stride() == copies[0].stride() for t in copies) and dense(copies[0])
    return list(copies) if alike else [t.contiguous() for t in copies]


def _fake_rows(like: torch.Tensor, rows: int) -> Pair:
    return (like.new_empty((rows, len(reference.SCALARS)), dtype=torch.float64), like.new_empty((rows, reference.BINS), dtype=torch.int64))


def _fake_aggregate(inputs: Sequence[torch.Tensor], scale: float, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (torch.empty_like(_alike(inputs)[0]), *_fake_rows(inputs[0], 1))


def _fake_aggregate_(outs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], scale: float, seed: int) -> Pair:
    return _fake_rows(inputs[0], len(outs))


def _fake_statistics(tensors: Sequence[torch.Tensor], seed: int) -> Pair:
    return _fake_rows(tensors[0] if tensors else torch.empty(0), len(tensors))


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.copies, ctx.scale = len(inputs[0]), inputs[1]
    ctx.mark_non_differentiable(output[1], output[2])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, out: torch.Tensor | None, scalars: Any, bins: Any) -> Any:
    return ([None if out is None else out * ctx.scale] * ctx.copies, None, None)


def _define(name: str, function: Any, fake: Any, mutates: Sequence[str] = ()) -> Any:
    op = torch.library.custom_op(f"gpudoctor::{name}", function, mutates_args=tuple(mutates))
    op.register_fake(fake)
    return op


aggregate = _define("aggregate", _aggregate, _fake_aggregate)
aggregate.register_autograd(_backward, setup_context=_remember)
aggregate_ = _define("aggregate_", _aggregate_, _fake_aggregate_, ["outs"])
statistics = _define("statistics", _statistics, _fake_statistics)
