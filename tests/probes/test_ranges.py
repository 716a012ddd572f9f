"""The ranges that nsys is shown: every phase, waiting for data included, closed also where an epoch ends."""

from __future__ import annotations

from pathlib import Path

from tests.probes.ranks import facts, run_ranks

SCRIPT = """
import sys, types
seen, ids = [], iter(range(10_000))
def start_range(name, domain=None):
    seen.append((name, next(ids)))
    return seen[-1]
closed = []
sys.modules["nvtx"] = types.SimpleNamespace(start_range=start_range, end_range=closed.append)

import torch
from torch.utils.data import DataLoader, TensorDataset
from gpudoctor.probes import _session as session
from gpudoctor.probes.ranges import Ranges
session.add(Ranges())

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(6, 4)), batch_size=2)
for epoch in range(2):
    for (batch,) in loader:
        model(batch).sum().backward()
        optimizer.step()
names = [name for name, _ in seen]
session.fact("ranges", detail=" ".join(n.split()[0] for n in names), value=float(len(set(seen) - set(closed))))
"""


def test_every_phase_has_its_range(tmp_path: Path) -> None:
    (told,) = facts(run_ranks(tmp_path, SCRIPT), "ranges")
    step = ["data", "forward", "backward", "optimizer", "step"]
    first = ["data", "backward", "optimizer", "step"]  # the model is known from its first optimizer step on
    assert told["detail"].split() == ["step", *first, *step, *step, "data", *step, *step, *step, "data"]
    assert told["value"] == 1, "only the step that has begun is open"
