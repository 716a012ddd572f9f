"""A script that asks to be watched, and is started by torchrun without the doctor."""

import sys

import gpudoctor

gpudoctor.watch(sys.argv[1])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank() + 1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
