"""A batch is copied on a side stream and used on the main one, and nothing orders the two.

    gpudoctor lint examples/faults/copy_stream_without_wait.py
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup() -> tuple[int, int, torch.device]:
    cuda = torch.cuda.is_available()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    return dist.get_rank(), dist.get_world_size(), device


def main() -> None:
    rank, _, device = setup()
    torch.manual_seed(rank)
    model = DDP(nn.Linear(1024, 1024).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    copies = torch.cuda.Stream()
    host = torch.randn(4096, 1024).pin_memory()
    for _ in range(20):
        with torch.cuda.stream(copies):
            batch = host.to(device, non_blocking=True)
        loss = model(batch).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
