"""Try every strategy on the cards, and recommend the fastest that fits, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpudoctor.machine.plan.costs import Costs
from gpudoctor.machine.plan.split import share_batch
from gpudoctor.machine.plan.strategies import STRATEGIES, Load, Option, Strategy, single
from gpudoctor.machine.simulate import MARK, Step, predict_scaling
from gpudoctor.machine.topology import Topology
from gpudoctor.units import size

CONTEXT = 800 << 20  # CUDA context, cuBLAS workspace and NCCL's buffers
_KEPT_FREE = 0.04
_AS_GOOD = 0.05
_REBUILDING = {"pipeline": 0.85, "model": 0.85}  # cutting a model up costs its author days: it must be clearly faster
_DATA_PARALLEL = ("ddp", "zero1", "zero2", "fsdp2")
_OPTIONS = (Option(), Option(checkpoint=True), Option(eight_bit=True), Option(checkpoint=True, eight_bit=True))
_OFFLOADS = (Option(offload=True), Option(checkpoint=True, offload=True))


@dataclass(slots=True)
class Choice:
    """One strategy with its additions. `short` is how much the tightest card lacks [B], 0 if it fits."""

    name: str
    words: str
    option: Option
    load: Load
    short: int

    @property
    def fits(self) -> bool:
        return self.short == 0

    @property
    def rate(self) -> float:
        """Samples a second, modelled."""
        return self.load.samples / self.load.time if self.load.time else 0.0

    @property
    def additions(self) -> int:
        """How many things are added to the plain strategy."""
        return self.option.checkpoint + self.option.eight_bit + self.option.offload

    @property
    def title(self) -> str:
        return f"{self.words} + {self.option.words}" if self.option.words else self.words


@dataclass(slots=True)
class Plan:
    """All choices, the recommended one (None if none fits) and why."""

    costs: Costs
    topology: Topology
    optimizer: str
    choices: list[Choice]
    best: Choice | None
    reasons: list[str]
    batch_limit: int
    shares: list[int] = field(default_factory=list)
    scaling: list[Step] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """The plan as plain values."""
        c = self.costs
        return {
            "model": {
                "name": c.name, "parameters": c.parameters, "trainable": c.trainable, "precision": c.precision, "batch_per_card": c.batch, "counted": c.exact,
                "parameter_bytes": c.parameter_bytes, "gradient_bytes": c.gradient_bytes, "optimizer": self.optimizer, "state_bytes": c.state_bytes(self.optimizer),
                "activation_bytes": c.activations, "activation_bytes_checkpointed": c.activations_checkpointed, "flops": c.flops, "notes": list(c.notes),
            },
            "cards": [{"name": n.name, "memory": n.memory, "usable": usable(n.memory), "peak_flops": n.peak, "link": n.link} for n in self.topology.nodes],
            "assumed": list(self.topology.assumed),
            "choices": [
                {"strategy": x.name, "words": x.title, "memory": x.load.memory, "host_memory": x.load.host_memory, "fits": x.fits, "short": x.short,
                 "sent_per_step": x.load.sent, "step_seconds": x.load.time, "samples_per_second": x.rate, "split": x.load.split}
                for x in self.choices
            ],
            "recommended": None if self.best is None else self.best.title, "reasons": self.reasons, "largest_batch_per_card": self.batch_limit,
            "suggested_batch_per_rank": self.shares, "times_are": MARK,
            "scaling": [{"cards": s.cards, "step_seconds": s.time, "exposed_seconds": s.exposed, "speedup": s.speedup, "efficiency": s.efficiency} for s in self.scaling],
        }


def usable(memory: int) -> int:
    """What training may take of a card: all but the context and a little that fragmentation eats."""
    return max(int(memory * (1 - _KEPT_FREE)) - CONTEXT, 0)


def advise(costs: Costs, topology: Topology, optimizer: str) -> Plan:
    """Weigh all strategies for `costs` at its batch a card."""
    choices = list(_choices(costs, topology, optimizer))
    best = _best([c for c in choices if c.fits and (len(topology.nodes) == 1 or c.name != "single")])
    limit = _largest_batch(costs, topology, optimizer, best) if best else 0
    plan = Plan(costs, topology, optimizer, choices, best, _reasons(choices, best, topology), limit)
    parallel = _best([c for c in choices if c.fits and c.name in _DATA_PARALLEL])
    if parallel and len({(n.speed, n.memory) for n in topology.nodes}) > 1:
        limits = [_card_limit(costs, topology, optimizer, parallel, i) for i in range(len(topology.nodes))]
        plan.shares = share_batch(costs.batch * len(topology.nodes), [n.speed for n in topology.nodes], limits)
    if costs.flops:
        plan.scaling = predict_scaling(costs.flops / topology.nodes[0].speed, costs.gradient_bytes, topology)
    return plan


def _choices(costs: Costs, topology: Topology, optimizer: str) -> Iterator[Choice]:
    alone = topology.first(1)
    for option in _options(costs, optimizer):
        yield _choice("single", "one card", single, option, costs, alone, optimizer)
    for option in _OFFLOADS if len(topology.nodes) == 1 else ():
        yield _choice("single", "one card", single, option, costs, alone, optimizer)
    if len(topology.nodes) < 2:
        return
    for name, (words, strategy, needs_blocks) in STRATEGIES.items():
        if needs_blocks and len(costs.blocks) < len(topology.nodes):
            continue
        for option in (*_options(costs, optimizer), *(_OFFLOADS if name == "fsdp2" else ())):
            if not option.checkpoint or costs.activations_checkpointed is not None:
                yield _choice(name, words, strategy, option, costs, topology, optimizer)


def _options(costs: Costs, optimizer: str) -> list[Option]:
    return [
        o for o in _OPTIONS
        if (not o.checkpoint or costs.activations_checkpointed is not None) and (not o.eight_bit or optimizer in ("adam", "adamw"))
    ]


def _choice(name: str, words: str, strategy: Strategy, option: Option, costs: Costs, topology: Topology, optimizer: str) -> Choice:
    load = strategy(costs, topology, optimizer, option)
    short = max(max(need - usable(node.memory) for need, node in zip(load.memory, topology.nodes, strict=True)), 0)
    return Choice(name, words, option, load, short)


def _best(fitting: list[Choice]) -> Choice | None:
    """The fastest; among those nearly as fast the one with the fewest additions, in the order of the strategies."""
    if not fitting:
        return None
    def worth(choice: Choice) -> float:
        return choice.rate * _REBUILDING.get(choice.name, 1.0)

    fastest = max(map(worth, fitting))
    good = [c for c in fitting if worth(c) >= (1 - _AS_GOOD) * fastest]
    order = ["single", *STRATEGIES]
    return min(good, key=lambda c: (c.option.offload, c.option.eight_bit, c.option.checkpoint, order.index(c.name), -c.rate))


def _reasons(choices: list[Choice], best: Choice | None, topology: Topology) -> list[str]:
    plain = {c.name: c for c in choices if not c.option.words}
    if best is None:
        nearest = min(choices, key=lambda c: c.short)
        return [f"nothing fits: {nearest.title} comes nearest and lacks {size(nearest.short)} on a card; lower the batch or the sequence length, or add cards"]
    reasons = []
    if len(topology.nodes) > 1 and best.name != "ddp" and "ddp" in plain:
        ddp = plain["ddp"]
        reasons.append(f"plain DDP lacks {size(ddp.short)} a card" if not ddp.fits else f"plain DDP fits, and is modelled at {ddp.rate:.3g} samples/s against {best.rate:.3g}")
    if best.option.words and best.name in plain and not plain[best.name].fits:
        reasons.append(f"{best.words} without {best.option.words} lacks {size(plain[best.name].short)} a card")
    tightest = min(usable(n.memory) - need for need, n in zip(best.load.memory, topology.nodes, strict=False))
    reasons.append(f"it fits with {size(tightest)} to spare on the tightest card")
    if best.load.sent and best.load.time:
        reasons.append(f"each card sends {size(best.load.sent)} a step; {best.rate:.3g} samples/s ({MARK})")
    rivals = [c for c in choices if c.fits and c.name not in (best.name, "single") and not c.option.words]
    if rivals and best.name == "ddp":
        second = max(rivals, key=lambda c: c.rate)
        reasons.append(f"next best is {second.title} at {second.rate:.3g} samples/s")
    return reasons


def _largest_batch(costs: Costs, topology: Topology, optimizer: str, best: Choice) -> int:
    return min(_card_limit(costs, topology, optimizer, best, i) for i in range(len(best.load.memory)))


def _card_limit(costs: Costs, topology: Topology, optimizer: str, best: Choice, card: int) -> int:
    """The largest batch a card that this strategy holds on `card`."""
    strategy = single if best.name == "single" else STRATEGIES[best.name][1]
    host = topology.first(1) if best.name == "single" else topology
    low, high = 0, 1 << 20
    while low < high:
        middle = (low + high + 1) // 2
        need = strategy(costs.at_batch(middle), host, optimizer, best.option).memory[card]
        low, high = (middle, high) if need <= usable(host.nodes[card].memory) else (low, middle - 1)
    return low if costs.activations else costs.batch
