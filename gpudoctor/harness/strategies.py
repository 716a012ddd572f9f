"""The same training in several ways. Each gives the loss of every global batch and the final weights.

    single     one process, one device
    dp         torch.nn.DataParallel: one process, all cards (deprecated, here to be compared)
    ddp        DistributedDataParallel: each rank takes its share of the batch
    model      one process, layers cut over the cards
    pipeline   torch.distributed.pipelining: each rank holds a stage, micro-batches flow through
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import distributed, nn

from gpudoctor.harness.context import Context
from gpudoctor.harness.data import Corpus
from gpudoctor.harness.model import MICRO_BATCHES, cut, loss_of, make_model

LEARNING_RATE = 3e-3


@dataclass(slots=True)
class Trained:
    """Loss of each global batch, as float64, and the weights at the end (flat, on the CPU) where this rank has them all."""

    losses: list[float]
    weights: torch.Tensor | None


class Unavailable(Exception):
    """The machine lacks what the strategy needs; the text says what."""


def train(context: Context, strategy: str, order: str = "") -> Trained:
    """Train `context.steps` steps from the seed. `order="reversed"` turns every batch round: the noise of reordering."""
    return STRATEGIES[strategy](context, order)


def make_optimizer(parameters: object) -> torch.optim.Optimizer:
    """The same for all: SGD with momentum, so that a difference in gradients is not blown up as Adam's first steps would."""
    return torch.optim.SGD(parameters, lr=LEARNING_RATE * 10, momentum=0.9)  # type: ignore[no-any-return,unused-ignore]


def _single(context: Context, order: str) -> Trained:
    model = make_model(context.size, context.seed).to(context.device)
    return _loop(context, model, lambda tokens: model(tokens), context.device, order)


def _dp(context: Context, order: str) -> Trained:
    if context.cards < 2:
        raise Unavailable(f"DataParallel needs two GPUs in one process, here are {context.cards}")
    model = make_model(context.size, context.seed).to("cuda:0")
    parallel = nn.DataParallel(model)
    return _loop(context, model, lambda tokens: parallel(tokens), torch.device("cuda:0"), order)


def _model(context: Context, order: str) -> Trained:
    parts = make_model(context.size, context.seed)
    cards = [torch.device("cuda", n) for n in range(context.cards)] or [context.device]
    devices = cards if len(cards) > 1 else cards * 2  # two stages on one card still cross a `.to`
    stages = cut(len(parts), len(devices))
    for (begin, end), device in zip(stages, devices, strict=True):
        parts[begin:end].to(device)

    def forward(tokens: torch.Tensor) -> torch.Tensor:
        x = tokens
        for (begin, end), device in zip(stages, devices, strict=True):
            x = parts[begin:end](x.to(device))
        return x

    return _loop(context, parts, forward, devices[-1], order, first=devices[0])


def _loop(context: Context, model: nn.Module, forward: Callable[[torch.Tensor], torch.Tensor], last: torch.device, order: str, first: torch.device | None = None) -> Trained:
    corpus = Corpus(context.size.context, context.seed)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for step in range(context.steps):
        tokens, targets = corpus.batch(step, context.size.batch)
        if order == "reversed":
            tokens, targets = tokens.flip(0), targets.flip(0)
        optimizer.zero_grad()
        loss = loss_of(forward(tokens.to(first or last)), targets.to(last))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return Trained([float(loss) for loss in losses], _flat(model))


def _ddp(context: Context, order: str) -> Trained:
    if context.world < 2:
        raise Unavailable("DistributedDataParallel needs two ranks: give --ranks 2")
    model = make_model(context.size, context.seed).to(context.device)
    ddp = nn.parallel.DistributedDataParallel(model, device_ids=[context.device.index] if context.cuda else None)
    corpus, optimizer = Corpus(context.size.context, context.seed), make_optimizer(ddp.parameters())
    share = context.size.batch // context.world
    mine = slice(context.rank * share, (context.rank + 1) * share)
    losses = []
    for step in range(context.steps):
        tokens, targets = corpus.batch(step, context.size.batch)
        optimizer.zero_grad()
        loss = loss_of(ddp(tokens[mine].to(context.device)), targets[mine].to(context.device))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    means = torch.stack(losses).double()
    distributed.all_reduce(means)
    return Trained((means / context.world).tolist(), _flat(model))


def _pipeline(context: Context, order: str) -> Trained:
    if context.world < 2:
        raise Unavailable("a pipeline needs two ranks: give --ranks 2")
    if context.shares_cards:
        raise Unavailable(f"gloo cannot send GPU memory between ranks, and {context.world} ranks share {context.cards} GPU: it needs {context.world} GPUs, or --cpu")
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    parts = make_model(context.size, context.seed)
    begin, end = cut(len(parts), context.world)[context.rank]
    stage_module = parts[begin:end].to(context.device)
    stage = PipelineStage(stage_module, context.rank, context.world, context.device)
    last = context.rank == context.world - 1
    schedule = ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=loss_of)
    corpus, optimizer = Corpus(context.size.context, context.seed), make_optimizer(stage_module.parameters())
    curve = torch.zeros(context.steps, dtype=torch.float64, device=context.device)
    for step in range(context.steps):
        tokens, targets = (part.to(context.device) for part in corpus.batch(step, context.size.batch))
        optimizer.zero_grad()
        parts_of_loss: list[torch.Tensor] = []
        if context.rank == 0:
            schedule.step(tokens)
        elif last:
            schedule.step(target=targets, losses=parts_of_loss)
        else:
            schedule.step()
        optimizer.step()
        if last:
            curve[step] = torch.stack(parts_of_loss).mean()
    distributed.broadcast(curve, context.world - 1)
    return Trained(curve.tolist(), _gathered(context, stage_module))


def _gathered(context: Context, module: nn.Module) -> torch.Tensor:
    return torch.cat([part for part in context.gather(_flat(module)) if part is not None])


def _flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().cpu().reshape(-1) for p in module.parameters()])


STRATEGIES: dict[str, Callable[[Context, str], Trained]] = {"single": _single, "dp": _dp, "ddp": _ddp, "model": _model, "pipeline": _pipeline}
