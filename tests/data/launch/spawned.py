"""DDP on two ranks that the script starts itself with mp.spawn; any argument makes rank 1 fail at its end."""

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, store, fail):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank + 1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    print("rank", rank, "is done")
    if fail and rank == 1:
        raise ValueError("the planted fault")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(work, (sys.argv[1], len(sys.argv) > 2), nprocs=2)
