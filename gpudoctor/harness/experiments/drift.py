"""Does training on several ranks compute what one card computes?"""

from __future__ import annotations

import torch

from gpudoctor.harness.context import Context
from gpudoctor.harness.result import Column, Plot, Result, Series
from gpudoctor.harness.strategies import Trained, Unavailable, train

TITLE = "Drift: every strategy against one card"
ROUNDING = 1e-5
"""Losses of one card and a strategy may differ by this over 20 steps; reordering a batch differs by about 1e-6."""
COLUMNS = [Column("strategy"), Column("final loss"), Column("max |loss - single|"), Column("max |weight - single|"), Column("agrees")]


def run(context: Context) -> Result:
    """Train alone, alone with every batch reversed (the noise of reordering), then by every other strategy."""
    alone = context.rank == 0
    single = train(context, "single")
    noise = gap(train(context, "single", "reversed"), single)[0] if alone else 0.0
    rows, curves = [["single", single.losses[-1], 0.0, 0.0, "reference"], ["single, batches reversed", "", noise, "", "noise of reordering"]], [Series("single", _steps(single), single.losses)]
    wrong = []
    for strategy in ("dp", "ddp", "model", "pipeline"):
        try:
            if strategy in ("dp", "model") and not alone:
                continue
            trained = train(context, strategy)
        except Unavailable as why:
            rows.append([strategy, "", "", "", f"not run: {why}"])
            continue
        apart, weights = gap(trained, single)
        good = agrees(apart, noise)
        wrong += [] if good else [strategy]
        rows.append([strategy, trained.losses[-1], apart, weights, "yes" if good else "NO"])
        curves.append(Series(strategy, _steps(trained), trained.losses))
    return Result("drift", TITLE, verdict(wrong, [str(r[0]) for r in rows[2:] if r[4] == "yes"], context.steps), "bad" if wrong else "ok", COLUMNS, rows, [Plot("Loss", "step", "loss", curves)])


def agrees(apart: float, noise: float) -> bool:
    """Whether a difference in loss is rounding: under 1e-5, or ten times what reordering a batch does here (TF32, bf16)."""
    return apart <= max(ROUNDING, 10 * noise)


def gap(trained: Trained, single: Trained) -> tuple[float, float]:
    """Largest difference in loss, and in a weight."""
    loss = max(abs(a - b) for a, b in zip(trained.losses, single.losses, strict=True))
    if trained.weights is None or single.weights is None:
        return loss, float("nan")
    return loss, float(torch.max(torch.abs(trained.weights - single.weights)))


def verdict(wrong: list[str], right: list[str], steps: int) -> str:
    if wrong:
        return f"{' and '.join(wrong)} left the single-card loss by more than rounding within {steps} steps: gradients are not combined as they should be"
    if not right:
        return "no second strategy could run, so there is nothing to compare"
    return f"{', '.join(right)} follow the single-card loss to rounding over {steps} steps"


def _steps(trained: Trained) -> list[float]:
    return [float(n) for n in range(len(trained.losses))]
