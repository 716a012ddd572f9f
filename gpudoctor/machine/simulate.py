"""A model of data-parallel step time over a topology. A model, not a measurement: bandwidth, latency and overlap, no more.

An all-reduce is a ring: 2(N-1) steps, each moving 1/N of the bytes over every hop, at the pace of the slowest hop.
Buckets become ready evenly through the backward pass and are reduced one after another beside it; what is left when
the backward pass ends is exposed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpudoctor.machine.topology import Topology

BUCKET = 25 << 20
BACKWARD_SHARE = 2 / 3
MARK = "modelled, not measured"


@dataclass(frozen=True, slots=True)
class Step:
    """One modelled step [s]: compute of the slowest card, all communication, and the part of it that nothing hides."""

    cards: int
    compute: float
    communication: float
    exposed: float
    speedup: float = 1.0

    @property
    def time(self) -> float:
        return self.compute + self.exposed

    @property
    def efficiency(self) -> float:
        return self.speedup / self.cards


def all_reduce_time(count: int, topology: Topology) -> float:
    """Seconds for one all-reduce of `count` bytes over all cards of the topology; 0 on one card."""
    n = len(topology.nodes)
    if n < 2 or count <= 0:
        return 0.0
    hops = [topology.hop(i, (i + 1) % n, n) for i in range(n)]
    slowest, latency = min(rate for rate, _ in hops), max(late for _, late in hops)
    return 2 * (n - 1) / n * count / slowest + 2 * (n - 1) * latency


def exposed_time(buckets: Sequence[int], backward: float, topology: Topology, overlap: bool = True) -> tuple[float, float]:
    """All communication and its exposed part [s] for gradient buckets in the order they become ready."""
    times = [all_reduce_time(b, topology) for b in buckets]
    if not overlap or not buckets:
        return sum(times), sum(times)
    total, done, ready = sum(buckets), 0.0, 0.0
    for size, time in zip(buckets, times, strict=True):
        ready += backward * size / total
        done = max(done, ready) + time
    return sum(times), max(done - backward, 0.0)


def buckets_of(gradient_bytes: int, bucket: int = BUCKET) -> list[int]:
    """Gradients cut as DDP cuts them: a first bucket of 1 MiB, then `bucket` bytes each."""
    sizes, left = [], gradient_bytes
    for limit in (1 << 20, *[bucket] * (gradient_bytes // bucket + 1)):
        if left > 0:
            sizes.append(min(limit, left))
            left -= sizes[-1]
    return sizes


def predict_scaling(
    compute: float, gradient_bytes: int, topology: Topology, counts: Iterable[int] = (1, 2, 4, 8), bucket: int = BUCKET, overlap: bool = True,
) -> list[Step]:
    """Data-parallel steps on `counts` cards, each with the same batch a card. `compute` is one card's step [s].

    The speed-up is of samples a second against one card. Cards beyond those at hand are taken to be like the last one.
    """
    steps = []
    for count in counts:
        host = topology.first(count)
        slowest = max(topology.nodes[0].speed / node.speed for node in host.nodes)
        total, exposed = exposed_time(buckets_of(gradient_bytes, bucket), compute * slowest * BACKWARD_SHARE, host, overlap) if count > 1 else (0.0, 0.0)
        step = Step(count, compute * slowest, total, exposed)
        steps.append(Step(count, step.compute, total, exposed, count * compute / step.time if step.time else float(count)))
    return steps


def judge_all_reduce(count: int, measured: float, topology: Topology) -> tuple[float, str]:
    """Measured against expected: their ratio, and `as expected`, `slow` or `faster than the model`."""
    expected = all_reduce_time(count, topology)
    ratio = measured / expected if expected else float("inf")
    if ratio > 2:
        return ratio, "slow"
    return ratio, "as expected" if ratio >= 0.5 else "faster than the model"
