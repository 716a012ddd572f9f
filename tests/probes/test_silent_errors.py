"""Public silent training errors, found from a run alone; each with the correct script beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probes.judge import diagnose, names

MOVED = """
model = DDP(nn.Linear(8, 4))
{move}
opt = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(6):
    opt.zero_grad()
    model(torch.randn(4, 8, dtype=torch.float64)).square().mean().backward()
    opt.step()
"""


def test_ddp_moved_after_wrap(tmp_path: Path) -> None:
    found = diagnose(tmp_path, MOVED.format(move="model.double()"))
    assert names(found) == ["ddp-moved-after-wrap"]
    assert found[0].ranks == [0, 1]
    assert found[0].values["change"] == "from float32 on cpu to float64 on cpu"


def test_moved_before_wrap(tmp_path: Path) -> None:
    assert diagnose(tmp_path, MOVED.replace("DDP(nn.Linear(8, 4))", "DDP(nn.Linear(8, 4).double())").format(move="")) == []


REWRAPPED = """
net = nn.Linear(8, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
{before}
for epoch in range(3):
    {inside}
    for step in range(3):
        opt.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        opt.step()
"""


def test_wrapper_made_anew(tmp_path: Path) -> None:
    found = diagnose(tmp_path, REWRAPPED.format(before="", inside="model = DDP(net)"))
    assert names(found) == ["ddp-rewrapped"]
    assert found[0].values["model"] == "Linear"


def test_wrapped_once(tmp_path: Path) -> None:
    assert diagnose(tmp_path, REWRAPPED.format(before="model = DDP(net)", inside="pass")) == []


STALE = """
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
{replace}
model = DDP(net)
for step in range(6):
    model.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    opt.step()
"""


def test_optimizer_does_not_move_the_weights(tmp_path: Path) -> None:
    found = diagnose(tmp_path, STALE.format(replace="net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))"))
    assert names(found) == ["step-without-update"]


def test_layer_replaced_behind_the_optimizer(tmp_path: Path) -> None:
    found = diagnose(tmp_path, STALE.format(replace="net[1] = nn.Linear(8, 4)"))
    assert names(found) == ["params-not-in-optimizer"]
    assert "1.weight" in found[0].message


def test_optimizer_built_last(tmp_path: Path) -> None:
    assert diagnose(tmp_path, STALE.format(replace="")) == []


WORKERS = """
import numpy as np
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Noisy(Dataset):
    def __len__(self):
        return 48
    def __getitem__(self, i):
        return torch.full((8,), float(i)) + float(np.random.rand())

def init(worker):
    np.random.seed({seed})

data = Noisy()
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, worker_init_fn=init)
model = DDP(nn.Linear(8, 4))
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
for x in loader:
    opt.zero_grad()
    model(x).square().mean().backward()
    opt.step()
"""


def test_same_augmentation_in_workers(tmp_path: Path) -> None:
    found = diagnose(tmp_path, WORKERS.format(seed="0"))
    assert names(found) == ["augmentation-seed-shared"]
    assert "numpy" in found[0].message


def test_workers_seeded_apart(tmp_path: Path) -> None:
    assert diagnose(tmp_path, WORKERS.format(seed="torch.initial_seed() % 2**32")) == []


LOST = """
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
calls = 0

def transport(state, bucket):
    global calls
    calls += 1
    bad = rank == 1 and calls in {lost}
    return allreduce_hook(state, bucket).then(lambda f: f.value().zero_() if bad else f.value())

model = DDP(nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 4)), bucket_cap_mb=0.2)
model.register_comm_hook(None, transport)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(100):
    opt.zero_grad(set_to_none=True)
    model(torch.randn(4, 64)).square().mean().backward()
    opt.step()
"""


@pytest.mark.slow
def test_lost_transfers(tmp_path: Path) -> None:
    """Two transfers of about two hundred are zeroed on rank 1: found at the first, with rank and bucket."""
    found = diagnose(tmp_path, LOST.format(lost="(21, 140)"), sample_every=1, overhead_budget=1.0)
    assert "allreduce-wrong" in names(found)
    wrong = next(f for f in found if f.name == "allreduce-wrong")
    assert wrong.ranks == [1]
    calls_a_step = 2
    assert wrong.values["step"] in (20 // calls_a_step, 20 // 3)
    assert wrong.values["bucket"] >= 0
    assert {f.name for f in found} <= {"allreduce-wrong", "replica-drift"}


def test_honest_transport(tmp_path: Path) -> None:
    assert diagnose(tmp_path, LOST.format(lost="()").replace("range(100)", "range(12)")) == []
