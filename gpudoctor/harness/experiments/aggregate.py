"""What adding gradients costs: our kernel with statistics, PyTorch with and without them, an all-reduce."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import distributed

from gpudoctor.errors import MissingExtraError
from gpudoctor.harness.context import Context
from gpudoctor.harness.result import Column, Plot, Result, Series
from gpudoctor.kernels import ops, reference

TITLE = "Aggregate: gradients added, with and without their statistics"
ROUNDING = 1e-5
"""Largest error of a mean of unit-normal float32 values; rounding leaves about 1e-7."""
COLUMNS = [Column("elements", "n"), Column("way"), Column("time", "s"), Column("memory traffic", "B/s"), Column("statistics"), Column("largest error")]


def run(context: Context) -> Result:
    """Time each way on two float32 buffers of each size, and check each against double precision."""
    sizes = [1 << 16, 1 << 20, 1 << 24, 1 << 27] if context.cuda else [1 << 12, 1 << 16, 1 << 20]
    rows: list[list[Any]] = []
    curves: dict[str, Series] = {}
    wrong: list[str] = []
    for numel in sizes:
        generator = torch.Generator(context.device).manual_seed(context.seed + context.rank)
        mine, other = (torch.randn(numel, device=context.device, generator=generator) for _ in range(2))
        for way, seconds, statistics, error in [*_added(context, mine, other), *_reduced(context, mine)]:
            rows.append([numel, way, seconds, 3 * mine.nbytes / seconds if isinstance(seconds, float) else "", statistics, error])
            if isinstance(seconds, float):
                wrong += [way] if not error <= ROUNDING else []
                curves.setdefault(way, Series(way)).add(float(numel), seconds)
    return Result("aggregate", TITLE, verdict(rows, wrong) if context.rank == 0 else "", "bad" if wrong else "ok", COLUMNS, rows,
                  [Plot("Time to aggregate", "elements", "seconds", list(curves.values()), "xy")], limits(context))


def _added(context: Context, mine: torch.Tensor, other: torch.Tensor) -> Iterator[tuple[str, float | str, str, float]]:
    """Two buffers of this card added; rank 0 does it alone, so that ranks on one card do not disturb it."""
    if context.rank == 0:
        out = torch.empty_like(mine)
        exact = reference.combine([mine, other], 0.5)
        for way, (work, statistics) in ways(context, mine, other, out).items():
            try:
                seconds = context.solo().median_s(work)
            except MissingExtraError as why:
                yield way, "", f"not run: {why}", 0.0
                continue
            out.fill_(torch.nan)
            work()
            yield way, seconds, statistics, float((out.double() - exact).abs().max())
    context.gather(None)


def _reduced(context: Context, mine: torch.Tensor) -> Iterator[tuple[str, float | str, str, float]]:
    """Every rank's buffer averaged by an all-reduce. Through gloo a large one takes seconds and says no more."""
    if context.world > 1 and (context.backend == "nccl" or mine.numel() <= 1 << 24):
        scratch = mine.clone()
        seconds = context.median_s(lambda: distributed.all_reduce(scratch.copy_(mine)))
        yield f"all-reduce, {context.backend}", seconds, "none", float((all_reduced(context, mine) - average_by_gather(context, mine)).abs().max())


def ways(context: Context, mine: torch.Tensor, other: torch.Tensor, out: torch.Tensor) -> dict[str, Any]:
    """Name → (work, what statistics it gives)."""

    def separate() -> None:
        torch.add(mine, other, out=out).mul_(0.5)
        magnitude = out.abs()
        torch.linalg.vector_norm(out), out.sum(), magnitude.max(), (out == 0).sum(), (~out.isfinite()).sum(), torch.histc(magnitude, 64)

    found: dict[str, Any] = {
        "torch, add alone": (lambda: torch.add(mine, other, out=out).mul_(0.5), "none"),
        "torch, separate passes": (separate, "all but sketch"),
    }
    if context.cuda:
        found["our kernel"] = (lambda: ops.aggregate_([out], [mine, other], 0.5, 0), "all")
    return found


def all_reduced(context: Context, mine: torch.Tensor) -> torch.Tensor:
    total = mine.clone()
    distributed.all_reduce(total)
    return total / context.world


def average_by_gather(context: Context, mine: torch.Tensor) -> torch.Tensor:
    """The mean over ranks in double precision, from every rank's own buffer."""
    sent = mine.cpu() if context.backend == "gloo" else mine
    parts = [torch.empty_like(sent) for _ in range(context.world)]
    distributed.all_gather(parts, sent)
    return reference.combine(parts, 1 / context.world).to(mine.device)


def limits(context: Context) -> list[str]:
    return [] if context.cuda else ["the aggregation kernel needs a CUDA GPU: only PyTorch and the all-reduce were timed"]


def verdict(rows: list[list[Any]], wrong: list[str]) -> str:
    """Compare at the largest size."""
    if wrong:
        return f"{' and '.join(dict.fromkeys(wrong))} gave a sum that is not the sum"
    largest = {row[1]: row[2] for row in rows if row[0] == rows[-1][0] and isinstance(row[2], float)}
    said = [f"at {rows[-1][0] / 1e6:.0f} M elements every way gives the sum that double precision gives"]
    if "our kernel" in largest:
        said.append(f"the kernel, statistics included, takes {largest['our kernel'] / largest['torch, separate passes']:.2f} of PyTorch's separate passes "
                    f"and {largest['our kernel'] / largest['torch, add alone']:.2f} of its bare addition and scaling")
    else:
        said.append(f"PyTorch's separate passes take {largest['torch, separate passes'] / largest['torch, add alone']:.1f} times its bare addition")
    return "; ".join(said)
