"""What adding gradients costs: our kernel with statistics, PyTorch with and without them, an all-reduce."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

from gpudoctor.errors import MissingExtraError
from gpudoctor.harness.context import Context
from gpudoctor.harness.result import Column, Plot, Result, Series
from gpudoctor.kernels import ops, reference

TITLE = "Aggregate: gradients added, with and without their statistics"
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
        out = torch.empty_like(mine)
        exact = reference.combine([mine, other], 0.5)
        for way, (work, statistics) in ways(context, mine, other, out).items():
            try:
                seconds = context.median_s(work)
            except MissingExtraError as why:
                rows.append([numel, way, "", "", f"not run: {why}", ""])
                continue
            error: Any = ""
            if way.startswith("all-reduce"):
                error = float((all_reduced(context, mine) - average_by_gather(context, mine)).abs().max())
            else:
                work()
                error = float((out.double() - exact).abs().max())
            wrong += [way] if error > 1e-5 else []
            rows.append([numel, way, seconds, 3 * mine.nbytes / seconds, statistics, error])
            line = curves.setdefault(way, Series(way))
            line.add(float(numel), seconds)
    return Result("aggregate", TITLE, verdict(rows, wrong, context), "bad" if wrong else "ok", COLUMNS, rows,
                  [Plot("Time to aggregate", "elements", "seconds", list(curves.values()), "xy")], limits(context))


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
    if context.world > 1 and (context.backend == "nccl" or mine.numel() <= 1 << 24):
        scratch = mine.clone()
        found[f"all-reduce, {context.backend}"] = (lambda: distributed.all_reduce(scratch.copy_(mine)), "none")
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


def verdict(rows: list[list[Any]], wrong: list[str], context: Context) -> str:
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
