import itertools
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn import SyncBatchNorm
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler


def reduce_mean(value, world):
    value = value.clone()
    dist.all_reduce(value, op=dist.ReduceOp.SUM)
    return value / world


def freeze(net, on):
    for p in net.parameters():
        p.requires_grad_(on)


def train(rank, world, data, generator, critic):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    generator = DDP(SyncBatchNorm.convert_sync_batchnorm(generator).cuda(rank), device_ids=[rank])
    critic = DDP(critic.cuda(rank), device_ids=[rank], broadcast_buffers=False)
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4)
    opt_d = torch.optim.Adam(critic.parameters(), lr=1e-4)
    sampler = DistributedSampler(data, num_replicas=world, rank=rank)
    loader = DataLoader(data, 16, sampler=sampler, num_workers=2, pin_memory=True, drop_last=True)
    bce = nn.BCEWithLogitsLoss()
    history = []
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for i, real in enumerate(loader):
            real = real.cuda(rank, non_blocking=True)
            noise = torch.randn(real.size(0), 64, device=real.device)
            fake = generator(noise)
            opt_d.zero_grad()
            loss_d = bce(critic(real), torch.ones_like(real[:, :1])) + bce(critic(fake.detach()), torch.zeros_like(real[:, :1]))
            loss_d.backward()
            opt_d.step()
            if i % 5 == 0:
                opt_g.zero_grad()
                loss_g = bce(critic(fake), torch.ones_like(real[:, :1]))
                loss_g.backward()
                opt_g.step()
            if i % 100 == 0:
                shown = reduce_mean(loss_d.detach(), world)
                if rank == 0:
                    history.append(shown.item())
        if rank == 0 and epoch % 10 == 0:
            with torch.no_grad():
                generator.module.eval()
                sample = generator.module(torch.randn(4, 64, device=real.device))
                generator.module.train()
            torch.save({"g": generator.module.state_dict(), "sample": sample.cpu()}, os.path.join("out", f"{epoch}.pt"))
        dist.barrier(device_ids=[rank])
        if epoch == 50:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    from parts import critic, data, generator

    torch.multiprocessing.spawn(train, args=(torch.cuda.device_count(), data(), generator(), critic()), nprocs=torch.cuda.device_count())
