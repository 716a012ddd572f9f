"""One training step of the harness, to be timed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import distributed, nn

from gpudoctor.harness.context import Context
from gpudoctor.harness.data import Corpus
from gpudoctor.harness.model import loss_of, make_model
from gpudoctor.harness.strategies import make_optimizer


class Trainer:
    """A model on this rank's device, under DDP if a group is given; `step()` trains on `batch` sequences of this rank."""

    def __init__(self, context: Context, batch: int, group: distributed.ProcessGroup | None = None) -> None:
        self.model = make_model(context.size, context.seed).to(context.device)
        self.wrapped: nn.Module = self.model
        if group is not None:
            self.wrapped = nn.parallel.DistributedDataParallel(self.model, [context.device.index] if context.cuda else None, process_group=group)
        self.optimizer = make_optimizer(self.model.parameters())
        tokens, targets = Corpus(context.size.context, context.seed).batch(context.rank, batch)
        self.tokens, self.targets = tokens.to(context.device), targets.to(context.device)

    @property
    def gradient_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.model.parameters())

    def step(self) -> None:
        """Forward, backward, update; nothing is read back."""
        self.optimizer.zero_grad()
        loss_of(self.wrapped(self.tokens), self.targets).backward()
        self.optimizer.step()


def captured(trainer: Trainer) -> Callable[[], None]:
    """The trainer's step as a CUDA graph to replay; captured on a side stream after three warm-up steps, as PyTorch asks."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            trainer.step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    trainer.optimizer.zero_grad()
    with torch.cuda.graph(graph):
        loss_of(trainer.wrapped(trainer.tokens), trainer.targets).backward()
        trainer.optimizer.step()
    return lambda: graph.replay()
