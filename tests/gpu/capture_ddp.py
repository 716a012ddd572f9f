"""A DDP training on real cards with one planted fault, for captures whose truth is known.

    gpudoctor run --out OUT/straggler tests/gpu/capture_ddp.py --fault straggler --late-rank 1

Faults: none (all-reduce overlaps the backward), exposed (one bucket, reduced after the backward), straggler (one rank sleeps 5 ms before each
forward), imbalance (one rank holds 2 GiB more), missing-wait (the batch comes from a side stream that nothing waits for),
hidden-sum (a hook that forgets to divide), no-sync (accumulation leaves out the last micro-batch), bypass (forward around DDP).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

FAULTS = ("none", "exposed", "straggler", "imbalance", "missing-wait", "hidden-sum", "no-sync", "bypass")


def summed(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """All-reduce as a sum: the division by the world size is what is missing."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--late-rank", type=int, default=1)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=512)
    options = parser.parse_args()

    rank, local_rank, world = (int(os.environ[k]) for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local_rank % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"]) else "gloo")

    torch.manual_seed(0)
    layers = [part for _ in range(options.layers) for part in (nn.Linear(options.width, options.width), nn.GELU())]
    model = DDP(nn.Sequential(*layers).to(device), device_ids=[device.index] if cuda else None, bucket_cap_mb=10_000 if options.fault == "exposed" else 25)
    if options.fault == "hidden-sum":
        model.register_comm_hook(None, summed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=cuda)
    ballast = torch.empty(2 << 30, dtype=torch.uint8, device=device) if options.fault == "imbalance" and rank == 0 else None
    side = torch.cuda.Stream() if cuda else None
    host = torch.randn(options.batch, options.width, generator=torch.Generator().manual_seed(rank))
    host = host.pin_memory() if cuda else host

    for step in range(options.steps):
        if side is not None and options.fault == "missing-wait":
            with torch.cuda.stream(side):
                batch = host.to(device, non_blocking=True) * (1 + step / options.steps)
        else:
            batch = host.to(device, non_blocking=True) * (1 + step / options.steps)
        if options.fault == "straggler" and rank == options.late_rank % world:
            time.sleep(0.005)
        last = not (options.fault == "no-sync" and step % 2)
        with contextlib.nullcontext() if last else model.no_sync():
            output = model.module(batch) if options.fault == "bypass" else model(batch)
            output.square().mean().backward()
        if options.fault != "no-sync" or step % 2:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    if cuda:
        torch.cuda.synchronize()
    del ballast
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
