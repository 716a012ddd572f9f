"""Where launch overhead ends: eager steps against the same steps as a CUDA graph, by batch size."""

from __future__ import annotations

from typing import Any

from gpudoctor.harness.context import Context
from gpudoctor.harness.result import Column, Plot, Result, Series, cannot
from gpudoctor.harness.steps import Trainer, captured

TITLE = "Launch: eager against CUDA graph, by batch size"
COLUMNS = [Column("sequences", "n"), Column("eager step", "s"), Column("graph step", "s"), Column("eager / graph")]
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
BOUND = 1.1
"""Above this ratio launching, not computing, sets the pace."""


def run(context: Context) -> Result:
    """Time both on this rank's card; other ranks wait, so that they do not share it."""
    if not context.cuda:
        return cannot("launch", TITLE, "a CUDA GPU is needed: on a CPU nothing is launched")
    rows: list[list[Any]] = []
    if context.rank == 0:
        alone = context.solo()
        for batch in BATCHES:
            trainer = Trainer(alone, batch)
            eager = alone.median_s(trainer.step, runs=15, warmup=5)
            graph = alone.median_s(captured(trainer), runs=15, warmup=3)
            rows.append([batch, eager, graph, eager / graph])
    context.gather(None)
    curves = [Series(name, [float(r[0]) for r in rows], [r[n] for r in rows]) for n, name in ((1, "eager"), (2, "CUDA graph"))]
    return Result("launch", TITLE, verdict(rows), "ok", COLUMNS, rows, [Plot("Step by batch size", "sequences", "seconds", curves, "xy")])


def verdict(rows: list[list[Any]]) -> str:
    bound = [row for row in rows if row[3] > BOUND]
    if not bound:
        return "launching sets no batch size's pace: a CUDA graph would gain less than a tenth"
    if bound[-1] is rows[-1]:
        return f"launching still sets the pace at {rows[-1][0]} sequences, where a CUDA graph is {rows[-1][3]:.1f} times as fast"
    after = next(row[0] for row in rows if row[0] > bound[-1][0])
    return f"launching sets the pace up to {bound[-1][0]} sequences (a CUDA graph is {bound[0][3]:.1f} times as fast at {bound[0][0]}); from {after} on the card is busy by itself"
