"""1…N ranks, each with the same share of work: what a further rank adds."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import distributed

from gpudoctor.harness.context import Context
from gpudoctor.harness.result import Column, Plot, Result, Series, cannot
from gpudoctor.harness.steps import Trainer

TITLE = "Scaling: sequences a second on 1 to N ranks"
COLUMNS = [Column("ranks", "n"), Column("step", "s"), Column("sequences/s", "n"), Column("efficiency", "%")]


def run(context: Context) -> Result:
    """Time a DDP step on the first 1, 2, 4, … and all N ranks; the others wait."""
    if context.world < 2:
        return cannot("scale", TITLE, "two ranks are needed: give --ranks 2")
    share = max(1, context.size.batch // context.world)
    counts = sorted({1, context.world, *(1 << n for n in range(1, 12) if 1 << n < context.world)})
    rows: list[list[Any]] = []
    for count in counts:
        group = distributed.new_group(list(range(count)))
        seconds = 0.0
        if context.rank < count:
            trainer = Trainer(context, share, group if count > 1 else None)
            for _ in range(3):
                trainer.step()
            context.sync()
            seconds = _time(context, trainer, group)
        seconds = max(s for s in context.gather(seconds))
        rows.append([count, seconds, count * share / seconds, 0.0])
    for row in rows:
        row[3] = row[2] / (row[0] * rows[0][2])
    curve = Series("measured", [float(r[0]) for r in rows], [r[2] for r in rows])
    ideal = Series("in proportion", curve.x, [r[0] * rows[0][2] for r in rows])
    return Result("scale", TITLE, verdict(rows, short_of(context)), "ok", COLUMNS, rows, [Plot("Throughput", "ranks", "sequences a second", [curve, ideal])], short_of(context))


def _time(context: Context, trainer: Trainer, group: distributed.ProcessGroup, runs: int = 8) -> float:
    import time

    distributed.barrier(group=group, **({"device_ids": [context.device.index]} if context.backend == "nccl" else {}))
    begin = time.perf_counter()
    for _ in range(runs):
        trainer.step()
    context.sync()
    return (time.perf_counter() - begin) / runs


def short_of(context: Context) -> list[str]:
    """Why this machine's numbers cannot speak for N cards."""
    if context.cuda and context.cards < context.world:
        return [f"{context.world} ranks share {context.cards} GPU{'s' * (context.cards > 1)}: this shows overhead, not what {context.world} cards would do"]
    cores = os.cpu_count() or 1
    if not context.cuda:
        return [f"{context.world} ranks on {cores} CPU cores, {torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)} each: ranks compete for memory and caches"
                + (", and there are more ranks than cores" if context.world > cores else "")]
    return []


def verdict(rows: list[list[Any]], limits: list[str]) -> str:
    last = rows[-1]
    text = f"{last[0]} ranks give {last[2] / rows[0][2]:.2f} times one rank's throughput, {last[3]:.0%} of what in proportion would be"
    return text + ("; how cards scale cannot be concluded here" if limits else "")
