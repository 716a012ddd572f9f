"""A real reservation by the caching allocator, and what it changes."""

from __future__ import annotations

import time
from typing import Any

import torch

from gpudoctor.harness.context import Context
from gpudoctor.harness.data import Corpus
from gpudoctor.harness.model import loss_of
from gpudoctor.harness.result import Column, Plot, Result, Series, cannot
from gpudoctor.harness.steps import Trainer

TITLE = "Preallocation: a reservation made before the first step"
COLUMNS = [Column("way"), Column("cudaMalloc calls in steps", "n"), Column("slowest step", "s"), Column("median step", "s"), Column("reserved", "B"), Column("allocated at most", "B"), Column("unused, in pieces", "B")]


def run(context: Context) -> Result:
    """Train on batches that grow and shrink, without and with a reservation of what the first run needed."""
    if not context.cuda:
        return cannot("preallocate", TITLE, "a CUDA GPU is needed: the CPU has no caching allocator to reserve with")
    rows: list[list[Any]] = []
    curves: list[Series] = []
    if context.rank == 0:
        _steps(context, Trainer(context, 1), [64])  # libraries' own workspaces first
        plain = _measure(context, "as it comes", 0, rows, curves)
        _measure(context, "reserved before", int(plain * 1.1), rows, curves)
    context.gather(None)
    return Result("preallocate", TITLE, verdict(rows) if rows else "", "ok", COLUMNS, rows, [Plot("Step by step", "step", "seconds", curves, "y")],
                  ["torch.cuda.memory_reserved only reads a counter: a reservation is a block allocated once and freed to the allocator"])


def _measure(context: Context, way: str, reserve: int, rows: list[list[Any]], curves: list[Series]) -> int:
    """Run the steps; returns the most bytes that were reserved."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    if reserve:
        block = torch.empty(reserve, dtype=torch.uint8, device=context.device)
        del block  # back to the allocator, which keeps it
    trainer = Trainer(context, 1)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["num_device_alloc"]
    times = _steps(context, trainer, [8 * n for n in (2, 3, 4, 5, 6, 7, 8, 7, 5, 3, 8, 6, 4, 2, 8, 5, 7, 3, 6, 8)])
    stats = torch.cuda.memory_stats()
    pieces = stats["inactive_split_bytes.all.current"]
    rows.append([way, stats["num_device_alloc"] - before, max(times), sorted(times)[len(times) // 2], stats["reserved_bytes.all.peak"], stats["allocated_bytes.all.peak"], pieces])
    curves.append(Series(way, [float(n) for n in range(len(times))], times))
    return int(stats["reserved_bytes.all.peak"])


def _steps(context: Context, trainer: Trainer, batches: list[int]) -> list[float]:
    """Seconds of a step on each batch size."""
    times = []
    corpus = Corpus(context.size.context, context.seed)
    for n, batch in enumerate(batches):
        tokens, targets = (part.to(context.device) for part in corpus.batch(n, batch))
        torch.cuda.synchronize()
        begin = time.perf_counter()
        trainer.optimizer.zero_grad()
        loss_of(trainer.model(tokens), targets).backward()
        trainer.optimizer.step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return times


def verdict(rows: list[list[Any]]) -> str:
    plain, reserved = rows
    if plain[1] <= reserved[1]:
        return f"the reservation saved no cudaMalloc ({plain[1]} without, {reserved[1]} with): this training needs none"
    return f"a reservation takes cudaMalloc calls in steps from {plain[1]} to {reserved[1]} and the slowest step from {plain[2] * 1e3:.1f} to {reserved[2] * 1e3:.1f} ms; the median step goes from {plain[3] * 1e3:.1f} to {reserved[3] * 1e3:.1f} ms"
