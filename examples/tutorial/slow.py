"""The tutorial's script as its author left it: right, but slow on two cards. See docs/tutorial.md."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WINDOW = 4


class Signals(Dataset):
    """Noisy waves that are made, and smoothed, each time one is asked for."""

    def __len__(self) -> int:
        return 1024

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        wave = torch.randn(256, generator=generator)
        for _ in range(60):
            wave = (wave + wave.roll(1) + wave.roll(-1)) / 3
        return wave, wave.mean().reshape(1)


def main() -> None:
    cuda = torch.cuda.is_available()
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    data = Signals()
    sampler = DistributedSampler(data, shuffle=True, seed=0)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for step, (wave, target) in enumerate(loader):
            loss = nn.functional.mse_loss(model(wave.to(device)), target.to(device)) / WINDOW
            loss.backward()
            if step % WINDOW == WINDOW - 1:
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= dist.get_world_size()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            print(f"rank {dist.get_rank()} step {step}: {loss.item():.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
