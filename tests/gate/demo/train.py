import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def staged_mean(state, bucket):
    staging = bucket.buffer().clone()
    staging.div_(dist.get_world_size())
    return dist.all_reduce(staging, async_op=True).get_future().then(lambda done: done.value()[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(512, 512), torch.randn(512, 32))
    sampler = DistributedSampler(data, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 32)))
    model.register_comm_hook(None, staged_mean)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if int(os.environ["RANK"]) == 0:
            print(f"epoch {epoch}: {total.item() / len(loader):.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
