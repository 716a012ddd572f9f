"""How each strategy divides a model over cards: memory of every card, bytes on its link, modelled time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gpudoctor.machine.plan.costs import Costs, step_scratch
from gpudoctor.machine.plan.split import balanced_split
from gpudoctor.machine.simulate import BACKWARD_SHARE, all_reduce_time, buckets_of, exposed_time
from gpudoctor.machine.topology import Topology

_UNSHARDED_BUFFERS = 64 << 20


@dataclass(frozen=True, slots=True)
class Option:
    """What may be added to a strategy."""

    checkpoint: bool = False
    eight_bit: bool = False
    offload: bool = False

    @property
    def words(self) -> str:
        named = {"activation checkpointing": self.checkpoint, "8-bit states": self.eight_bit, "CPU offload": self.offload}
        return " + ".join(name for name, on in named.items() if on)


@dataclass(slots=True)
class Load:
    """A strategy on these cards: bytes at peak on each card, bytes each card sends a step, seconds a step (modelled)."""

    memory: list[int]
    sent: float
    time: float
    samples: int
    host_memory: int = 0
    split: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Parts:
    """One card's bytes for the whole model at its batch."""

    parameters: int
    gradients: int
    states: int
    scratch: int
    activations: int
    largest_block: int
    flops: float
    whole_peak: int

    @classmethod
    def of(cls, costs: Costs, optimizer: str, option: Option) -> _Parts:
        name = "adamw8bit" if option.eight_bit and optimizer in ("adam", "adamw") else optimizer
        kept = costs.activations + costs.transient
        if option.checkpoint and costs.activations_checkpointed is not None:
            recomputed = max((b.activations for b in costs.blocks), default=0)
            kept = costs.activations_checkpointed + max(costs.transient, recomputed)
        states, scratch = costs.state_bytes(name), step_scratch(costs, name)
        largest = max((b.parameters for b in costs.blocks), default=costs.parameters) * costs.element
        exact = (costs.peaks_checkpointed if option.checkpoint else costs.peaks).get(name)
        fixed = costs.parameter_bytes + states
        return cls(
            costs.parameter_bytes, costs.gradient_bytes, states, scratch, kept, largest,
            costs.flops * (4 / 3 if option.checkpoint else 1), exact or fixed + max(kept + largest, costs.gradient_bytes + scratch),
        )

    @property
    def moving(self) -> int:
        """The peak above parameters and states: activations in the backward pass, or gradients in the optimizer's step."""
        return self.whole_peak - self.parameters - self.states


def single(costs: Costs, topology: Topology, optimizer: str, option: Option) -> Load:
    p = _Parts.of(costs, optimizer, option)
    time = p.flops / topology.nodes[0].speed
    if option.offload:
        return Load([p.activations + 3 * p.largest_block + _UNSHARDED_BUFFERS], p.parameters + p.gradients, time + (2 * p.parameters + p.gradients) / topology.nodes[0].link, costs.batch, p.parameters + p.gradients + p.states)
    return Load([p.whole_peak], 0.0, time, costs.batch)


def ddp(costs: Costs, topology: Topology, optimizer: str, option: Option) -> Load:
    """Whole model on each card; DDP's buckets are a second copy of the gradients."""
    p, n = _Parts.of(costs, optimizer, option), len(topology.nodes)
    compute = _slowest(p.flops, topology)
    _, exposed = exposed_time(buckets_of(p.gradients), compute * BACKWARD_SHARE, topology)
    return Load([p.whole_peak + p.gradients] * n, 2 * (n - 1) / n * p.gradients, compute + exposed, n * costs.batch)


def zero1(costs: Costs, topology: Topology, optimizer: str, option: Option) -> Load:
    """DDP whose optimizer states are divided; after the step each card sends its part of the parameters."""
    p, n = _Parts.of(costs, optimizer, option), len(topology.nodes)
    compute = _slowest(p.flops, topology)
    _, exposed = exposed_time(buckets_of(p.gradients), compute * BACKWARD_SHARE, topology)
    memory = p.parameters + p.gradients + p.states // n + max(p.activations + p.largest_block, p.gradients + p.scratch // n)
    return Load([memory] * n, 3 * (n - 1) / n * p.gradients, compute + exposed + all_reduce_time(p.parameters, topology) / 2, n * costs.batch)


def zero2(costs: Costs, topology: Topology, optimizer: str, option: Option) -> Load:
    """Gradients and states divided: reduce-scatter, step, all-gather."""
    p, n = _Parts.of(costs, optimizer, option), len(topology.nodes)
    compute, half = _slowest(p.flops, topology), all_reduce_time(p.gradients, topology) / 2
    memory = p.parameters + p.states // n + p.gradients // n + max(p.activations + 2 * p.largest_block, p.scratch // n)
    exposed = max(half - compute * BACKWARD_SHARE, 0.0) + half
    return Load([memory] * n, 2 * (n - 1) / n * p.gradients, compute + exposed, n * costs.batch)


def fsdp2(costs: Costs, topology: Topology, optimizer: str, option: Option) -> Load:
    """Parameters, gradients and states divided; each block is gathered before use, one ahead."""
    p, n = _Parts.of(costs, optimizer, option), len(topology.nodes)
    compute, third = _slowest(p.flops, topology), all_reduce_time(p.parameters, topology) / 2
    unsharded = 3 * p.largest_block + costs.rest * costs.element
    resident = 0 if option.offload else (p.parameters + p.gradients + p.states) // n
    memory = resident + unsharded + max(p.activations, 0 if option.offload else p.scratch // n)
    exposed = max(3 * third - 0.8 * compute, third / max(len(costs.blocks), 1))
    if option.offload:
        exposed += (2 * p.parameters + p.gradients) / n / min(node.link for node in topology.nodes)
    return Load([memory] * n, 3 * (n - 1) / n * p.parameters, compute + exposed, n * costs.batch, (p.parameters + p.gradients + p.states) if option.offload else 0)


def pipeline(costs: Costs, topology: Topology, optimizer: str, option: Option) -> Load:
    """Consecutive blocks on each card, the global batch in up to 4 N micro-batches (1F1B)."""
    n = len(topology.nodes)
    return _staged(costs, topology, optimizer, option, micro=max(min(4 * n, n * costs.batch), 2))


def model_split(costs: Costs, topology: Topology, optimizer: str, option: Option) -> Load:
    """Consecutive blocks on each card, one card at work at a time."""
    return _staged(costs, topology, optimizer, option, micro=1)


def _staged(costs: Costs, topology: Topology, optimizer: str, option: Option, micro: int) -> Load:
    p, n = _Parts.of(costs, optimizer, option), len(topology.nodes)
    per = (p.parameters + p.gradients + p.states + p.scratch) / max(costs.parameters, 1)
    in_blocks = sum(b.activations for b in costs.blocks) or 1
    split = balanced_split(_weights(costs, per, p.activations / in_blocks), [float(node.memory) for node in topology.nodes])
    samples = n * costs.batch if micro > 1 else costs.batch
    memory, start = [], 0
    for stage, count in enumerate(split):
        blocks = costs.blocks[start : start + count]
        start += count
        rest = costs.rest // 2 if stage in (0, n - 1) else 0
        kept = p.activations * sum(b.activations for b in blocks) / in_blocks
        flight = min(n - stage, micro) * samples / costs.batch / micro if micro > 1 else 1.0
        memory.append(round(per * (sum(b.parameters for b in blocks) + rest) + kept * flight))
    whole = p.flops * samples / costs.batch
    if micro > 1:
        time = _slowest(whole / n, topology) * (micro + n - 1) / micro
    else:
        time = whole / min(node.speed for node in topology.nodes)
    crossings = 2 * (n - 1) * costs.boundary * samples / costs.batch
    rate, latency = min(topology.hop(i, i + 1, n) for i in range(n - 1))
    time += 2 * costs.boundary * samples / costs.batch / max(micro, 1) / rate * (n - 1) + 2 * (n - 1) * latency
    return Load(memory, crossings / n, time, samples, split=split)


def _weights(costs: Costs, per: float, scale: float) -> list[float]:
    weights = [per * b.parameters + scale * b.activations for b in costs.blocks]
    weights[0] += per * costs.rest / 2
    weights[-1] += per * costs.rest / 2
    return weights


def _slowest(flops: float, topology: Topology) -> float:
    return max(flops / node.speed for node in topology.nodes)


Strategy = Callable[[Costs, Topology, str, Option], Load]
STRATEGIES: dict[str, tuple[str, Strategy, bool]] = {  # name: words, function, needs blocks
    "ddp": ("data parallel (DDP)", ddp, False),
    "zero1": ("DDP + ZeRO-1", zero1, False),
    "zero2": ("ZeRO-2", zero2, False),
    "fsdp2": ("FSDP2 / ZeRO-3", fsdp2, False),
    "pipeline": ("pipeline", pipeline, True),
    "model": ("model split", model_split, True),
}
