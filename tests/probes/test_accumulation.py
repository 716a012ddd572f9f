"""Accumulation windows, optimizers, samplers and clipping gone wrong under DDP; and the correct scripts beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probes.judge import diagnose, names

WINDOW = """
from contextlib import nullcontext
model = DDP(nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.02)
accum, batches = 4, {batches}
for epoch in range(2):
    for i in range(batches):
        window = accum if i // accum < batches // accum else batches % accum
        last = (i + 1) % accum == 0 or i + 1 == batches
        with nullcontext() if last else model.no_sync():
            loss = nn.functional.mse_loss(model(torch.randn(8, 16)), torch.randn(8, 4))
            (loss{scale}).backward()
        if last:
            opt.step()
            opt.zero_grad()
"""


@pytest.mark.parametrize(("batches", "scale", "expected"), [
    (12, "", ["accum-loss-not-scaled"]),
    (14, " / accum", ["accum-short-window"]),
    (14, " / window", []),
])
def test_windows(tmp_path: Path, batches: int, scale: str, expected: list[str]) -> None:
    assert names(diagnose(tmp_path, WINDOW.format(batches=batches, scale=scale))) == expected


FLAG = """
model = DDP(nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(5):
    opt.zero_grad()
    for micro in range(4):
        {before}
        loss = model(torch.randn(8, 16)).square().mean() / 4
        {after}
        loss.backward()
    opt.step()
"""
SET = "model.require_backward_grad_sync = micro == 3"


def test_flag_set_after_the_forward(tmp_path: Path) -> None:
    found = diagnose(tmp_path, FLAG.format(before="pass", after=SET))
    assert names(found) == ["no-sync-flag-after-forward"]
    assert found[0].severity.name == "error"


def test_flag_set_before_the_forward(tmp_path: Path) -> None:
    assert diagnose(tmp_path, FLAG.format(before=SET, after="pass")) == []


LATE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(16, 8), nn.Linear(8, 4)
    def forward(self, x):
        x = self.head(self.body(x))
        return self.extra(x) if hasattr(self, "extra") else x

net = Net()
{early}
model = DDP(net)
{late}
opt = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(5):
    opt.zero_grad()
    model(torch.randn(8, 16)).square().mean().backward()
    opt.step()
"""


@pytest.mark.parametrize(("early", "late", "expected"), [
    ("", "net.extra = nn.Linear(4, 4)", ["ddp-param-added-after-wrap"]),
    ("net.body.requires_grad_(False)", "net.body.requires_grad_(True)", ["ddp-param-added-after-wrap"]),
    ("net.extra = nn.Linear(4, 4)", "", []),
])
def test_parameters_added_or_thawed(tmp_path: Path, early: str, late: str, expected: list[str]) -> None:
    assert names(diagnose(tmp_path, LATE.format(early=early, late=late))) == expected


CLIP = """
net = nn.Linear(16, 4)
for p in net.parameters():
    dist.broadcast(p.data, src=0)
opt = torch.optim.SGD(net.parameters(), lr=0.02)
def clip():
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
for step in range(6):
    opt.zero_grad()
    net(torch.randn(8, 16) * (1 + rank)).square().mean().backward()
    {first}
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world
    {then}
    opt.step()
"""


def test_clipped_before_the_average(tmp_path: Path) -> None:
    assert names(diagnose(tmp_path, CLIP.format(first="clip()", then="pass"))) == ["clip-not-global"]


def test_clipped_after_the_average(tmp_path: Path) -> None:
    assert diagnose(tmp_path, CLIP.format(first="pass", then="clip()")) == []


SAMPLER = """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
data = TensorDataset(torch.arange(64.0).reshape(64, 1).expand(64, 16))
sampler = DistributedSampler(data, {options})
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DDP(nn.Linear(16, 4))
opt = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()
"""


@pytest.mark.parametrize(("options", "expected"), [
    ("seed=rank", ["sampler-seed-differs"]),
    ("num_replicas=2, rank=0", ["missing-distributed-sampler"]),
    ("seed=7", []),
])
def test_samplers(tmp_path: Path, options: str, expected: list[str]) -> None:
    assert names(diagnose(tmp_path, SAMPLER.format(options=options))) == expected


BYPASS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(16, 4)
    def forward(self, x):
        return self.body(x)
    def loss(self, x):
        return self.body(x).square().mean()

model = DDP(Net())
opt = torch.optim.SGD(model.parameters(), lr=0.02)
for step in range(8):
    opt.zero_grad()
    {loss}.backward()
    opt.step()
"""


def test_method_of_the_inner_module(tmp_path: Path) -> None:
    found = diagnose(tmp_path, BYPASS.format(loss="model.module.loss(torch.randn(4, 16))"))
    assert names(found) == ["ddp-forward-bypassed"]
    assert found[0].location is not None


def test_changed_on_one_rank(tmp_path: Path) -> None:
    change = "model(torch.randn(4, 16)).square().mean().backward()\n    if rank: model.module.body.weight.grad.mul_(2)\n    torch.zeros((), requires_grad=True)"
    assert names(diagnose(tmp_path, BYPASS.format(loss=change))) == ["gradient-not-averaged"]
