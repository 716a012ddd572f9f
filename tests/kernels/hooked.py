"""One rank of test_hook: `python -m tests.kernels.hooked OUT`. Trains with and without the hook; rank 0 writes what it saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import distributed, nn

from gpudoctor.kernels.hook import AggregationHook


def trained(hook: AggregationHook | None, rank: int) -> list[float]:
    torch.manual_seed(0)
    ddp = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3)))
    if hook is not None:
        ddp.register_comm_hook(hook, AggregationHook.run)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    torch.manual_seed(1 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        ddp(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
    return [float(p.double().sum()) for p in ddp.parameters()] + [float(p.grad.double().norm()) for p in ddp.parameters()]


def main(out: str) -> None:
    distributed.init_process_group("gloo")
    rank, world = distributed.get_rank(), distributed.get_world_size()
    plain = trained(None, rank)
    hook = AggregationHook(seed=5)
    hooked = trained(hook, rank)
    last = hook.records[-1]
    mine = {"plain": plain, "hooked": hooked, "records": len(hook.records), "numel": last.numel, "local": last.local[0].tolist(), "reduced": last.reduced[0].tolist(), "bins": int(last.reduced[1].sum())}
    ranks: list[dict[str, object]] = [{}] * world
    distributed.all_gather_object(ranks, mine)
    if rank == 0:
        Path(out).write_text(json.dumps(ranks))
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
