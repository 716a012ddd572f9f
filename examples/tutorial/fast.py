"""The tutorial's script after the cures of docs/tutorial.md."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WINDOW = 4


class Signals(Dataset):
    """Noisy waves, made and smoothed once."""

    def __init__(self) -> None:
        waves = torch.stack([torch.randn(256, generator=torch.Generator().manual_seed(index)) for index in range(1024)])
        for _ in range(60):
            waves = (waves + waves.roll(1, 1) + waves.roll(-1, 1)) / 3
        self.waves, self.targets = waves, waves.mean(1, keepdim=True)

    def __len__(self) -> int:
        return len(self.waves)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.waves[index], self.targets[index]


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
    loader = DataLoader(data, batch_size=8, sampler=sampler, pin_memory=cuda)
    model = DDP(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 1)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for step, (wave, target) in enumerate(loader):
            last = step % WINDOW == WINDOW - 1
            with contextlib.nullcontext() if last else model.no_sync():
                wave, target = wave.to(device, non_blocking=True), target.to(device, non_blocking=True)
                loss = nn.functional.mse_loss(model(wave), target) / WINDOW
                loss.backward()
            total += loss.detach()
            if last:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {total.item() / len(loader):.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
