"""Models for plan's tests: a small GPT, a small convolutional net, a perceptron; each with its inputs."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, vocab: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            hidden = block(hidden)
        return F.cross_entropy(self.head(self.norm(hidden)).flatten(0, 1).float(), y.flatten())


class Net(nn.Module):
    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        for i in range(4):
            a, b = (3, channels) if i == 0 else (channels << (i - 1), channels << i)
            steps.append(nn.Sequential(nn.Conv2d(a, b, 3, padding=1, stride=1 if i == 0 else 2), nn.BatchNorm2d(b), nn.ReLU()))
        self.body = nn.Sequential(*steps)
        self.head = nn.Linear(channels << 3, classes)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.head(self.body(x).mean((2, 3))), y)


def gpt() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    ids = torch.zeros(2, 64, dtype=torch.long)
    return Gpt(64, 3, 4, 500, 64), (ids, ids.clone())


def net() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Net(8, 10), (torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.long))


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 8)), torch.zeros(16, 64)


def wide_gpt() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    ids = torch.zeros(4, 256, dtype=torch.long)
    return Gpt(256, 6, 8, 2000, 256), (ids, ids.clone())
