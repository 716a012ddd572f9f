"""The same training on one rank or on several: one seed, one global batch. `double`: the mean is left out; `apart`: one layer is left out of DDP."""

import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

fault = sys.argv[1] if len(sys.argv) > 1 else ""
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
if fault == "apart":
    DDP._set_params_and_buffers_to_ignore_for_model(model, ["2.weight", "2.bias"])
net = DDP(model)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
data = torch.Generator().manual_seed(7)
for step in range(24):
    x, y = torch.randn(32, 16, generator=data), torch.randint(0, 4, (32,), generator=data)
    mine = slice(rank * 32 // world, (rank + 1) * 32 // world)
    loss = nn.functional.cross_entropy(net(x[mine]), y[mine])
    optimizer.zero_grad()
    (loss * (world if fault == "double" else 1)).backward()
    optimizer.step()
dist.destroy_process_group()
