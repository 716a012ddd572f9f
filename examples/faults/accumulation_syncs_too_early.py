"""Gradient accumulation reduces the first micro-batch and leaves out the last, so each rank steps with its own gradient.

    gpudoctor run examples/faults/accumulation_syncs_too_early.py
"""

import contextlib
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
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    window = 4
    for micro in range(40):
        x = torch.randn(16, 32, generator=generator).to(device)
        with contextlib.nullcontext() if micro % window == 0 else model.no_sync():
            loss = (model(x) - x.mean(1, keepdim=True)).square().mean() / window
            loss.backward()
        if micro % window == window - 1:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
