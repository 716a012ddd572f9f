"""Count a model's training memory on the meta device: `python -m gpudoctor.probes.model_cost REQUEST` prints JSON.

REQUEST is a JSON object: `factory` ("package.module:name"), `inputs` (texts such as "8x1024:int64", empty if the
factory returns them), `optimizers`, `precision` (fp32, bf16, mixed). The factory takes no argument and returns a
module, or a pair of module and inputs (a tensor, a tuple or a dict). The loss is the output's `loss`, the output
itself if it is a scalar, else the sum of its first tensor.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from gpudoctor.probes.meta_memory import MetaMemory, card_kernels

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=1e-3, foreach=False),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, foreach=True),
    "lion": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "mixed": torch.float32}


@dataclass(slots=True)
class Blocks:
    """The model's repeated part: the largest ModuleList or Sequential, by its children's names."""

    names: list[str] = field(default_factory=list)
    modules: list[nn.Module] = field(default_factory=list)


def main() -> None:
    """Read the request from the command line and print the costs."""
    sys.path.insert(0, os.getcwd())
    print(json.dumps(cost(json.loads(sys.argv[1]))))


def cost(request: dict[str, Any]) -> dict[str, Any]:
    """Counts in bytes for one process that trains the whole model at the request's batch."""
    dtype = DTYPES[request["precision"]]
    model, inputs = make(request["factory"], request.get("inputs", []), dtype)
    blocks = repeated_part(model)
    trainable = [p for p in model.parameters() if p.requires_grad]
    answer: dict[str, Any] = {
        "parameters": sum(p.numel() for p in model.parameters()), "parameter_bytes": sum(p.nbytes for p in model.parameters()),
        "trainable": sum(p.numel() for p in trainable), "gradient_bytes": sum(p.nbytes for p in trainable),
        "buffer_bytes": sum(b.nbytes for b in model.buffers()), "input_bytes": sum(t.nbytes for t in tensors(inputs)),
        "batch": next((t.shape[0] for t in tensors(inputs) if t.dim()), 1),
        "states": {}, "blocks": [{"name": n, "parameters": sum(p.numel() for p in m.parameters())} for n, m in zip(blocks.names, blocks.modules, strict=True)],
    }
    for name in request["optimizers"]:
        answer["states"][name] = state_bytes(trainable, name)
    if tensors(inputs):
        answer["flops"] = _flops(model, inputs)
        answer["activations"], answer["block_activations"] = activations(model, inputs, blocks)
        answer["boundary"] = _boundary(model, inputs, blocks)
        answer["peak"] = {name: peak(model, inputs, name) for name in request["optimizers"]}
        if blocks.modules:
            with checkpointed(blocks):
                answer["activations_checkpointed"], _ = activations(model, inputs, blocks)
                answer["peak_checkpointed"] = {name: peak(model, inputs, name) for name in request["optimizers"]}
    return answer


def make(factory: str, specs: list[str], dtype: torch.dtype) -> tuple[nn.Module, Any]:
    """Build the model and its inputs on the meta device."""
    module, _, name = factory.partition(":")
    with torch.device("meta"):
        made = getattr(importlib.import_module(module), name)()
    model, inputs = made if isinstance(made, tuple) else (made, ())
    if specs:
        inputs = tuple(_tensor(spec) for spec in specs)
    model = model.to("meta").to(dtype).train()
    return model, tree_map(lambda v: _as_input(v, dtype), inputs)


def _tensor(spec: str) -> torch.Tensor:
    shape, _, kind = spec.partition(":")
    return torch.zeros([int(n) for n in shape.split("x")], dtype=getattr(torch, kind or "float32"), device="meta")


def _as_input(value: Any, dtype: torch.dtype) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.to("meta")
    return value.to(dtype) if value.is_floating_point() else value


def tensors(tree: Any) -> list[torch.Tensor]:
    """All tensors in nested tuples, lists and dicts."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def repeated_part(model: nn.Module) -> Blocks:
    """The container with the most parameters among those of two composite children and more."""
    best, size = Blocks(), 0
    for prefix, module in model.named_modules():
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and sum(any(c.children()) for c in module) > 1:
            total = sum(p.numel() for p in module.parameters())
            if total > size:
                names = [f"{prefix}.{n}" if prefix else n for n, _ in module.named_children()]
                best, size = Blocks(names, list(module.children())), total
    return best


def _call(model: nn.Module, inputs: Any) -> torch.Tensor:
    if isinstance(inputs, dict):
        out = model(**inputs)
    else:
        out = model(*(inputs if isinstance(inputs, tuple) else (inputs,)))
    loss = out.get("loss") if isinstance(out, dict) else getattr(out, "loss", None)
    first = loss if isinstance(loss, torch.Tensor) else tensors(out)[0]
    scalar: torch.Tensor = first if first.dim() == 0 else first.sum()
    return scalar


def state_bytes(trainable: list[nn.Parameter], name: str) -> int:
    """Bytes of the optimizer's state after its first step, found by stepping on the meta device."""
    if name == "adamw8bit":
        return sum(_eight_bit(p) for p in trainable)
    copies = [nn.Parameter(torch.empty_like(p)) for p in trainable]
    for copy in copies:
        copy.grad = torch.empty_like(copy)
    optimizer = OPTIMIZERS[name](copies)
    with MetaMemory():
        optimizer.step()
    held = [t for state in optimizer.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    return sum(int(t.nbytes) for t in held)


def _eight_bit(p: nn.Parameter) -> int:
    """Two moments in blocks of 256 bytes with one fp32 scale each; small tensors stay in fp32."""
    count = int(p.numel())
    return 8 * count if count < 4096 else 2 * (count + 4 * -(-count // 256))


def activations(model: nn.Module, inputs: Any, blocks: Blocks) -> tuple[int, list[int]]:
    """Bytes that the forward pass keeps for the backward pass: in all, and by each block."""
    memory = MetaMemory()
    before, after = [0] * len(blocks.modules), [0] * len(blocks.modules)

    def note(where: list[int], index: int) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            where[index] = memory.live

        return hook

    handles = [block.register_forward_pre_hook(note(before, i)) for i, block in enumerate(blocks.modules)]
    handles += [block.register_forward_hook(note(after, i)) for i, block in enumerate(blocks.modules)]
    try:
        with memory, card_kernels():
            memory.add([*model.parameters(), *model.buffers(), *tensors(inputs)])
            start = memory.live
            loss = _call(model, inputs)
            total = memory.live - start
            del loss
    finally:
        for handle in handles:
            handle.remove()
    return total, [max(b - a, 0) for a, b in zip(before, after, strict=True)]


def _boundary(model: nn.Module, inputs: Any, blocks: Blocks) -> int:
    """Bytes that the first block hands to the second."""
    sizes: list[int] = []
    if not blocks.modules:
        return 0
    handle = blocks.modules[0].register_forward_hook(lambda _module, _args, out: sizes.append(sum(t.nbytes for t in tensors(out)[:1])))
    with card_kernels(), torch.no_grad():
        _call(model, inputs)
    handle.remove()
    return sizes[0] if sizes else 0


def peak(model: nn.Module, inputs: Any, name: str) -> int | None:
    """The most bytes live during two steps with gradients freed between them; None where it cannot be stepped."""
    if name not in OPTIMIZERS:
        return None
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = OPTIMIZERS[name](trainable)
    memory = MetaMemory()
    with memory, card_kernels():
        memory.add([*model.parameters(), *model.buffers(), *tensors(inputs)])
        for _ in range(2):
            loss = _call(model, inputs)
            loss.backward()
            del loss
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    most: int = memory.peak
    return most


def _flops(model: nn.Module, inputs: Any) -> int:
    with FlopCounterMode(display=False) as counter, card_kernels():
        _call(model, inputs).backward()
    model.zero_grad(set_to_none=True)
    total: int = counter.get_total_flops()
    return total


@contextlib.contextmanager
def checkpointed(blocks: Blocks) -> Iterator[None]:
    """Within it, every block recomputes its forward pass in the backward pass."""
    plain = [block.forward for block in blocks.modules]
    try:
        for block, forward in zip(blocks.modules, plain, strict=True):
            block.forward = _recomputed(forward)
        yield
    finally:
        for block in blocks.modules:
            del block.__dict__["forward"]


def _recomputed(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: checkpoint(forward, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)


if __name__ == "__main__":
    main()
