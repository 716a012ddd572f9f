"""A small GPT, as a list of parts that can be cut anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from gpudoctor.harness.data import VOCABULARY


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the model and its batch; `batch` is the global batch in sequences."""

    width: int = 48
    heads: int = 4
    depth: int = 4
    context: int = 32
    batch: int = 16

    @property
    def tokens(self) -> int:
        return self.batch * self.context


MICRO_BATCHES = 4
"""What a pipeline cuts a batch into."""


def size_for(cuda: bool, ranks: int) -> Size:
    """A size that a step takes milliseconds for: a block a rank at least, and a batch that ranks and micro-batches divide."""
    shares = ranks * MICRO_BATCHES
    batch = shares * -(-16 // shares)
    if cuda:
        return Size(width=512, heads=8, depth=max(8, ranks), context=256, batch=batch)
    return Size(depth=max(4, ranks), batch=batch)


class Embedding(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, size.width)
        self.places = nn.Parameter(torch.randn(size.context, size.width) * 0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """int64 [batch, context] → [batch, context, width]."""
        embedded: torch.Tensor = self.tokens(tokens) + self.places
        return embedded


class Block(nn.Module):  # type: ignore[misc,unused-ignore]
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads = size.heads
        self.before_attention = nn.LayerNorm(size.width)
        self.mixed = nn.Linear(size.width, 3 * size.width)
        self.attended = nn.Linear(size.width, size.width)
        self.before_network = nn.LayerNorm(size.width)
        self.network = nn.Sequential(nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, context, width = x.shape
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2) for part in self.mixed(self.before_attention(x)).chunk(3, dim=-1))
        attention = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, context, width)
        x = x + self.attended(attention)
        out: torch.Tensor = x + self.network(self.before_network(x))
        return out


def make_model(size: Size, seed: int) -> nn.Sequential:
    """Embedding, `depth` blocks, norm and head; weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(Embedding(size), *(Block(size) for _ in range(size.depth)), nn.LayerNorm(size.width), nn.Linear(size.width, VOCABULARY))


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of [batch, context, vocabulary] against int64 [batch, context]."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def cut(parts: int, stages: int) -> list[tuple[int, int]]:
    """`parts` layers cut into `stages` runs whose lengths differ by one at most."""
    edges = [parts * n // stages for n in range(stages + 1)]
    return list(pairwise(edges))
