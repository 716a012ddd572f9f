"""A DDP communication hook: buckets are averaged, and described before and after, by the aggregation kernel.

    hook = AggregationHook()
    ddp.register_comm_hook(hook, AggregationHook.run)

Two ranks exchange their buckets (as many bytes as an all-reduce moves) and add them in the kernel, in rank order, so both
hold the same bits; more ranks all-reduce, and the kernel divides and describes. Nothing waits for the device.
"""

from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from gpudoctor.kernels import ops
from gpudoctor.settle import settle_at_exit


@dataclass(frozen=True, slots=True)
class BucketRecord:
    """One bucket's statistics, on the device: float64 [6] and int64 [64] before and after the average."""

    bucket: int
    numel: int
    world: int
    local: tuple[torch.Tensor, torch.Tensor]
    reduced: tuple[torch.Tensor, torch.Tensor]


class AggregationHook:
    """The hook's state; `records` holds the latest buckets, oldest first. `seed` must be the same on all ranks."""

    def __init__(self, group: Any = None, seed: int = 0, keep: int = 1024) -> None:
        self.group, self.seed = group, seed
        self.records: deque[BucketRecord] = deque(maxlen=keep)
        settle_at_exit()

    def run(self, bucket: distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:  # DDP reads these annotations
        """The hook: a future of the averaged bucket."""
        buffer, index, world = bucket.buffer(), bucket.index(), distributed.get_world_size(self.group)
        local = self._first(ops.statistics([buffer], self.seed))
        if world == 2:
            copies = [torch.empty_like(buffer) for _ in range(world)]
            work = distributed.all_gather(copies, buffer, group=self.group, async_op=True)
        else:
            copies = [buffer]
            work = distributed.all_reduce(buffer, group=self.group, async_op=True)

        def average(future: Any) -> torch.Tensor:
            future.wait()
            reduced = self._first(ops.aggregate_([buffer], copies, 1.0 / world, self.seed))
            self.records.append(BucketRecord(index, buffer.numel(), world, local, reduced))
            result: torch.Tensor = buffer
            return result

        future: torch.futures.Future[torch.Tensor] = work.get_future().then(average)
        return future

    @staticmethod
    def _first(rows: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        return rows[0][0], rows[1][0]
