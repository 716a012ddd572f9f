"""A small DDP training that goes wrong in the way its argument names, on rank 1, at step 3."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FAULT = sys.argv[1]


def misbehave(rank: int) -> None:
    if FAULT == "mismatch":
        if rank == 1:
            dist.broadcast(torch.zeros(3), src=0)
        else:
            dist.all_reduce(torch.zeros(3))
    if FAULT == "all_stop":
        time.sleep(10_000)
    if rank != 1:
        return
    if FAULT == "raise":
        raise ValueError("the planted fault")
    if FAULT == "exit":
        sys.exit(7)
    if FAULT in ("sigkill", "abort", "segfault"):
        os.kill(os.getpid(), {"sigkill": signal.SIGKILL, "abort": signal.SIGABRT, "segfault": signal.SIGSEGV}[FAULT])
    if FAULT == "sleep":
        time.sleep(10_000)
    if FAULT == "ignore_term":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(10_000)


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank + 1)
    for step in range(6):
        if step == 3:
            misbehave(rank)
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        print(f"rank {rank} step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
