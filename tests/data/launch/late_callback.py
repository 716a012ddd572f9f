"""Ends while a thread of gloo's is still in a Python callback; DDP keeps that thread alive."""

import hashlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

LARGE = bytes(150_000_000)


def main() -> None:
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(4, 4))
    model(torch.randn(2, 4)).sum().backward()
    work = dist.all_reduce(torch.ones(4), async_op=True)
    work.get_future().then(lambda done: hashlib.sha256(LARGE))
    dist.destroy_process_group()


main()
