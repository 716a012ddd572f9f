"""Transformers by their shape: parameters exactly, activations and operations by formula."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.machine.plan.costs import Block, Costs


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer. Sizes are elements; `norm` is the parameters of one norm divided by `hidden` (1 RMS, 2 layer norm)."""

    name: str
    hidden: int
    layers: int
    heads: int
    vocab: int
    ffn: int
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = True
    norm: int = 1
    norms_per_layer: int = 2
    final_norm: bool = True
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    positions: int = 0
    experts: int = 0
    experts_used: int = 0
    extra: int = 0
    causal: bool = True
    head: bool = True
    activation: str = "gelu"
    dropout: bool = False

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        dim, kv = self._dim, self._kv
        q, k = self.heads * dim, kv * dim
        attention = self.hidden * (q + 2 * k) + q * self.hidden + (q + 2 * k) * self.qkv_bias + self.hidden * self.out_bias + 2 * dim * self.qk_norm
        one = (3 if self.gated else 2) * self.hidden * self.ffn + ((self.ffn * (2 if self.gated else 1) + self.hidden) if self.mlp_bias else 0)
        mlp = self.experts * one + self.hidden * self.experts if self.experts else one
        return attention + mlp + self.norms_per_layer * self.norm * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, tied ones once."""
        embedding = (self.vocab + self.positions) * self.hidden
        head = 0 if self.tied or not self.head else self.vocab * self.hidden
        return embedding + self.layers * self.layer_parameters + self.norm * self.hidden * self.final_norm + head + self.extra

    @property
    def _dim(self) -> int:
        return self.head_dim or self.hidden // self.heads

    @property
    def _kv(self) -> int:
        return self.kv_heads or self.heads

    def layer_activations(self, element: int) -> float:
        """Bytes a token that one layer keeps for the backward pass, attention fused (nothing quadratic is kept)."""
        q = self.heads * self._dim
        norms = (2 * self.hidden * 2 if element == 2 and self.norm == 1 else 2 * self.hidden) + 2 * self.hidden
        attention = 4 * q + self.hidden
        kept = {"gated": 4, "relu": 1, "gelu": 2}.get("gated" if self.gated else self.activation, 5)
        mlp = max(self.experts_used, 1) * kept * self.ffn + self.hidden * self.gated
        return element * (norms + attention + mlp) + 4 * self.heads + 2 * self.hidden * self.dropout

    def flops(self, sequence: int) -> float:
        """Operations a token, forward and backward: six a parameter in use, and attention."""
        unused = self.layers * (self.experts - self.experts_used) * 3 * self.hidden * self.ffn if self.experts else 0
        in_use = self.parameters - unused - self.positions * self.hidden - (self.vocab * self.hidden if not self.tied and self.head else 0)
        return 6 * in_use + (6 if self.causal else 12) * self.layers * self.heads * self._dim * sequence


def costs_of(shape: Shape, batch: int, sequence: int, precision: str) -> Costs:
    """What training `shape` costs at `batch` samples of `sequence` tokens a card."""
    element = 4 if precision == "fp32" else 2
    tokens = batch * sequence
    layer = round(tokens * shape.layer_activations(element))
    logits = tokens * shape.vocab if shape.head else 0
    boundary = tokens * shape.hidden * element
    casts = 2 * shape.parameters if precision == "mixed" else 0
    return Costs(
        name=shape.name, precision=precision, batch=batch, parameters=shape.parameters, trainable=shape.parameters,
        activations=shape.layers * layer + (4 + element) * logits + boundary + casts, activations_checkpointed=(shape.layers + 1) * boundary + (4 + element) * logits + casts,
        transient=(4 + element) * logits,
        blocks=tuple(Block(f"layer {i}", shape.layer_parameters, layer) for i in range(shape.layers)),
        boundary=boundary, flops=float(shape.flops(sequence) * tokens),
        notes=("activations and operations are from formulas with fused attention",),
    )


def shape_of_numbers(parameters: int | None, layers: int, hidden: int, heads: int, vocab: int, kv_heads: int = 0, ffn: int = 0, tied: bool = False) -> Shape:
    """A decoder from plain numbers; where the parameter count is given, the feed-forward width is fitted to it."""
    if parameters and not ffn:
        bare = Shape("numbers", hidden, layers, heads, vocab, 0, kv_heads, tied=tied).parameters
        ffn = max(round((parameters - bare) / (3 * hidden * layers)), hidden // 4)
    return Shape("numbers", hidden, layers, heads, vocab, ffn or 8 * hidden // 3, kv_heads, tied=tied)
