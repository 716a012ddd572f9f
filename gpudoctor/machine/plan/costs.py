"""The common currency: what one process that trains the whole model holds and computes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

OPTIMIZERS = ("sgd", "momentum", "rmsprop", "lion", "adam", "adamw", "adamw8bit", "adafactor")
PRECISIONS = ("fp32", "bf16", "mixed")
_MOMENTS = {"sgd": 0, "momentum": 1, "rmsprop": 1, "lion": 1, "adam": 2, "adamw": 2}
_SCALE_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Block:
    """One repeated part: its parameters (elements) and what its forward pass keeps at the model's batch [B]."""

    name: str
    parameters: int
    activations: int


@dataclass(frozen=True, slots=True)
class Costs:
    """A model at `batch` samples a card. Bytes unless said otherwise.

    `activations` are kept from the forward pass for the backward pass; `activations_checkpointed` is None where the model
    has no repeated part; `transient` is held for a moment as the backward pass begins. `peaks` are exact single-card peaks
    by optimizer where the step was played through on the meta device. `exact` tells counting from formulas.
    """

    name: str
    precision: str
    batch: int
    parameters: int
    trainable: int
    buffers: int = 0
    activations: int = 0
    activations_checkpointed: int | None = None
    transient: int = 0
    blocks: tuple[Block, ...] = ()
    boundary: int = 0
    flops: float = 0.0
    states: dict[str, int] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    peaks_checkpointed: dict[str, int] = field(default_factory=dict)
    exact: bool = False
    notes: tuple[str, ...] = ()

    @property
    def element(self) -> int:
        """Bytes of one parameter."""
        return 2 if self.precision == "bf16" else 4

    @property
    def parameter_bytes(self) -> int:
        return self.parameters * self.element + self.buffers

    @property
    def gradient_bytes(self) -> int:
        return self.trainable * self.element

    @property
    def rest(self) -> int:
        """Parameters outside the blocks (elements): embeddings, head, norms."""
        return self.parameters - sum(b.parameters for b in self.blocks)

    def state_bytes(self, optimizer: str) -> int:
        """Optimizer states: counted if they were, else by formula."""
        return self.states.get(optimizer, state_bytes(self.trainable, self.element, optimizer))

    def at_batch(self, batch: int) -> Costs:
        """The same model at another batch a card: what grows with the batch is scaled, exact peaks are dropped."""
        if batch == self.batch:
            return self
        share = batch / self.batch
        return replace(
            self, batch=batch, activations=round(self.activations * share), flops=self.flops * share, boundary=round(self.boundary * share), transient=round(self.transient * share),
            activations_checkpointed=None if self.activations_checkpointed is None else round(self.activations_checkpointed * share),
            blocks=tuple(replace(b, activations=round(b.activations * share)) for b in self.blocks), peaks={}, peaks_checkpointed={},
        )


def state_bytes(trainable: int, element: int, optimizer: str) -> int:
    """States of `trainable` elements of `element` bytes, by optimizer; small terms (step counters) left out."""
    if optimizer == "adamw8bit":
        return 2 * (trainable + 4 * trainable // _SCALE_BLOCK)
    if optimizer == "adafactor":
        return 16 * element * math.isqrt(trainable)
    return _MOMENTS[optimizer] * trainable * element


def step_scratch(costs: Costs, optimizer: str) -> int:
    """What the optimizer's step needs for a moment beside gradients and states: one buffer of the gradients' size for Adam."""
    return costs.gradient_bytes if optimizer in ("adam", "adamw", "rmsprop") else 0
