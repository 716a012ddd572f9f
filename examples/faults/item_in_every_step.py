"""The loss is read on the host in every step, so the host waits for the card instead of feeding it.

    gpudoctor lint examples/faults/item_in_every_step.py
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
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(rank)
    for step in range(20):
        x = torch.randn(16, 32, generator=generator).to(device)
        loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        print(f"step {step}: {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
