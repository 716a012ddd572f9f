"""What an experiment knows inside a rank: its place, its device, its peers."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from gpudoctor.harness.model import Size, size_for
from gpudoctor.settle import settle


@dataclass(slots=True)
class Context:
    """A rank. `device` is its own card, or the CPU; with fewer cards than ranks, ranks share them and talk through gloo."""

    rank: int
    world: int
    device: torch.device
    backend: str
    cards: int
    size: Size
    steps: int
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def cuda(self) -> bool:
        return str(self.device.type) == "cuda"

    @property
    def shares_cards(self) -> bool:
        return self.cuda and self.cards < self.world

    def setting(self) -> dict[str, Any]:
        """What a reader must know to judge the numbers."""
        name = torch.cuda.get_device_name(self.device) if self.cuda else f"CPU, {torch.get_num_threads()} threads a rank, {os.cpu_count()} cores"
        return {"ranks": self.world, "backend": self.backend, "device": name, "cards": self.cards, "torch": torch.__version__, "seed": self.seed}

    def limits(self) -> list[str]:
        """What no number of this run can show."""
        if not self.cuda:
            return ["ranks run on a CPU: times say nothing about GPUs"]
        if self.shares_cards:
            return [f"{self.world} ranks share {self.cards} GPU{'s' * (self.cards > 1)}: times and links between cards cannot be judged"]
        return []

    def solo(self) -> Context:
        """This rank by itself, to measure its card while the others wait."""
        return replace(self, world=1)

    def sync(self) -> None:
        if self.cuda:
            torch.cuda.synchronize(self.device)

    def median_s(self, work: Callable[[], Any], runs: int = 5, warmup: int = 1) -> float:
        """Median seconds of `work`, finished on the device, started by all ranks together."""
        times = []
        for turn in range(warmup + runs):
            self.sync()
            if self.world > 1:
                distributed.barrier()
            begin = time.perf_counter()
            work()
            self.sync()
            if turn >= warmup:
                times.append(time.perf_counter() - begin)
        return statistics.median(times)

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        distributed.all_gather_object(values, value)
        return values


def open_context(steps: int, seed: int, options: dict[str, Any], timeout_s: float = 120.0) -> Context:
    """Join the group that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cards = 0 if options.get("cpu") else torch.cuda.device_count()
    device = torch.device("cuda", rank % cards) if cards else torch.device("cpu")
    backend = "nccl" if cards >= world else "gloo"
    if cards:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // world))
    if world > 1:
        bound = {"device_id": device} if backend == "nccl" else {}
        distributed.init_process_group(backend, store=_store(world), rank=rank, world_size=world, timeout=timedelta(seconds=timeout_s), **bound)
    return Context(rank, world, device, backend, cards, size_for(bool(cards), world), steps, seed, options)


def close_context(context: Context) -> None:
    """Leave the group, once gloo's threads have dropped what they hold."""
    if context.world > 1:
        settle()
        distributed.destroy_process_group()


def _store(world: int) -> distributed.Store:
    """The group's key-value store. torchrun keeps one store through its restarts, in which new ranks would find the addresses of dead ones: each attempt gets keys of its own."""
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT")
    master = attempt is None and os.environ["RANK"] == "0"
    store = distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, master)
    return distributed.PrefixStore(f"attempt {attempt or 0}", store)
