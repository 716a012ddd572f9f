"""Loss scaling from 65536, an overflow on one rank, and whether all ranks agree on it."""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

from gpudoctor.harness.context import Context
from gpudoctor.harness.model import loss_of
from gpudoctor.harness.result import Column, Plot, Result, Series
from gpudoctor.harness.steps import Trainer

TITLE = "Mixed precision: the loss scale through an overflow"
COLUMNS = [Column("step", "n"), Column("loss"), Column("scale by rank"), Column("skipped by rank"), Column("what happened")]
FIRST_SCALE, GROW_AFTER = 65536.0, 4


def run(context: Context) -> Result:
    """Train with autocast and GradScaler; at a third of the way the last rank's loss becomes infinite once."""
    kind = context.device.type
    trainer = Trainer(context, max(1, context.size.batch // context.world), distributed.group.WORLD if context.world > 1 else None)
    scaler = torch.amp.GradScaler(kind, init_scale=FIRST_SCALE, growth_interval=GROW_AFTER)
    dtype = torch.float16 if context.cuda else torch.bfloat16
    poisoned = context.steps // 3
    scales: list[torch.Tensor] = []
    losses: list[torch.Tensor] = []
    moved: list[torch.Tensor] = []
    for step in range(context.steps):
        before = next(trainer.model.parameters()).detach().clone()
        trainer.optimizer.zero_grad()
        with torch.autocast(kind, dtype):
            loss = loss_of(trainer.wrapped(trainer.tokens), trainer.targets)
        losses.append(loss.detach().float())
        scaled = scaler.scale(loss)
        (scaled * torch.inf if step == poisoned and context.rank == context.world - 1 else scaled).backward()
        scaler.step(trainer.optimizer)
        scaler.update()
        scales.append(torch.tensor(scaler.get_scale()))
        moved.append((next(trainer.model.parameters()).detach() != before).any())
    mine = {"scales": torch.stack(scales).tolist(), "skipped": [not bool(m) for m in moved], "losses": torch.stack(losses).tolist(),
            "weights": [p.detach().double().sum().item() for p in trainer.model.parameters()]}
    ranks = context.gather(mine)
    rows = [_row(step, ranks, poisoned, context.world) for step in range(context.steps)]
    agreed = all(r["scales"] == ranks[0]["scales"] and r["skipped"] == ranks[0]["skipped"] for r in ranks)
    same = all(r["weights"] == ranks[0]["weights"] for r in ranks)
    reacted = ranks[0]["skipped"][poisoned] and ranks[0]["scales"][poisoned] == ranks[0]["scales"][poisoned - 1] / 2
    good = agreed and same and reacted
    plot = Plot("Loss scale", "step", "scale", [Series(f"rank {n}", [float(s) for s in range(context.steps)], r["scales"]) for n, r in enumerate(ranks)], "y")
    return Result("amp", TITLE, verdict(agreed, same, reacted, poisoned, context.world), "ok" if good else "bad", COLUMNS, rows, [plot], _limits(context), {"dtype": str(dtype).removeprefix("torch.")})


def _row(step: int, ranks: list[dict[str, Any]], poisoned: int, world: int) -> list[Any]:
    skipped = [r["skipped"][step] for r in ranks]
    before = ranks[0]["scales"][step - 1] if step else FIRST_SCALE
    now = ranks[0]["scales"][step]
    event = f"rank {world - 1}'s loss made infinite; " if step == poisoned else ""
    event += "scale halved, step skipped" if now < before else "scale doubled" if now > before else "step skipped" if any(skipped) else ""
    return [step, ranks[0]["losses"][step], " ".join(f"{r['scales'][step]:g}" for r in ranks), " ".join("yes" if s else "no" for s in skipped), event]


def verdict(agreed: bool, same: bool, reacted: bool, poisoned: int, world: int) -> str:
    if not reacted:
        return f"the overflow at step {poisoned} did not halve the scale and skip the step: loss scaling is not at work"
    if not agreed:
        return f"ranks disagree on scale or skipped steps after the overflow at step {poisoned}: one trains on while another skips"
    if not same:
        return "ranks agree on the scale, yet their weights differ"
    return f"an overflow on {'one of ' + str(world) + ' ranks' if world > 1 else 'this rank'} at step {poisoned} halves the scale, skips the step" + (" on all of them: the all-reduce spreads the infinity, so all agree and stay equal" if world > 1 else "")


def _limits(context: Context) -> list[str]:
    return [] if context.cuda else ["on a CPU autocast uses bfloat16, which needs no loss scale: the scaler's logic is shown, not its need"]
