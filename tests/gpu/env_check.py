"""On a CUDA card: `env` against nvidia-smi, its copy rate against a plain pinned copy, `plan` against real peaks.

    python tests/gpu/env_check.py        (from the repository's root; needs torch and nvidia-ml-py)

Prints a table and ends with exit code 1 if a bar is missed: facts equal, rate within 10 %, peaks within 10 %.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[2]))

from gpudoctor.machine.examine import examine
from gpudoctor.machine.live import LiveMachine
from gpudoctor.machine.plan.factory import costs_of_factory
from gpudoctor.probes.model_cost import OPTIMIZERS
from tests.machine.small_models import Gpt, Net

FIELDS = ("name", "uuid", "memory.total", "driver_version", "pcie.link.gen.max", "pcie.link.width.max", "pcie.link.width.current", "compute_cap")
USED = ("sgd", "momentum", "adamw")
BAR = 0.10


def gpt() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    ids = torch.zeros(8, 512, dtype=torch.long)
    return Gpt(1024, 8, 16, 32000, 512), (ids, ids.clone())


def net() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Net(64, 1000), (torch.zeros(32, 3, 224, 224), torch.zeros(32, dtype=torch.long))


def encoder() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.1, batch_first=True, activation="gelu", norm_first=True)
    return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), torch.zeros(16, 256, 768)


def main() -> None:
    """Run the three comparisons."""
    failed = [*facts_and_rate(), *peaks()]
    print("failed: " + "; ".join(failed) if failed else "all bars held")
    sys.exit(bool(failed))


def facts_and_rate() -> list[str]:
    """Names of the facts that differ from nvidia-smi's, and of rates that are off."""
    failed = []
    examined = examine(LiveMachine())
    print("machine:", {f.name: f.text or f.value for f in examined.facts if f.name != "interface"}, "unseen:", examined.unseen)
    lines = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True).stdout.splitlines()
    driver = examined.fact("driver")
    for card, line in zip(examined.cards, lines, strict=True):
        told = dict(zip(FIELDS, (v.strip() for v in line.split(",")), strict=True))
        seen = {
            "name": card.name, "uuid": card.uuid, "memory.total": str((card.memory or 0) >> 20), "driver_version": driver.text if driver else "",
            "pcie.link.gen.max": str(card.gen_max), "pcie.link.width.max": str(card.width_max), "pcie.link.width.current": str(card.width), "compute_cap": card.arch,
        }
        for field in FIELDS:
            same = told[field] == seen[field] or not told[field][:1].isalnum()
            print(f"{'ok ' if same else 'OFF'} {field:26} nvidia-smi {told[field]:44} env {seen[field]}")
            failed += [] if same else [field]
        plain = pinned_copy(card.index)
        ratio = (card.h2d or 0) / plain
        print(f"h2d: env {(card.h2d or 0) / 1e9:.2f} GB/s, plain pinned copy {plain / 1e9:.2f} GB/s, ratio {ratio:.3f}; under load PCIe {card.gen_load}.0 x{card.width_load}")
        failed += [] if abs(ratio - 1) <= BAR else [f"h2d of card {card.index}"]
    return failed


def pinned_copy(index: int) -> float:
    """Host to card by the host's clock [B/s]: the best of ten copies of 512 MiB."""
    host = torch.empty(512 << 20, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(512 << 20, dtype=torch.uint8, device=index)
    best = float("inf")
    for _ in range(11):
        torch.cuda.synchronize(index)
        begin = time.perf_counter()
        card.copy_(host, non_blocking=True)
        torch.cuda.synchronize(index)
        best = min(best, time.perf_counter() - begin)
    return host.nbytes / best


def peaks() -> list[str]:
    """Names of the models, optimizers and precisions whose peak is off by more than the bar."""
    failed = []
    for name, make in (("gpt", gpt), ("net", net), ("encoder", encoder)):
        for precision, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            costs = costs_of_factory(f"tests.gpu.env_check:{name}", [], list(USED), precision)
            for optimizer in USED:
                real = real_peak(make, dtype, optimizer)
                ratio = costs.peaks[optimizer] / real
                print(f"{'ok ' if abs(ratio - 1) <= BAR else 'OFF'} {name:8} {precision} {optimizer:9} plan {costs.peaks[optimizer] / 2**20:9.1f} MiB  real {real / 2**20:9.1f} MiB  ratio {ratio:.3f}")
                failed += [] if abs(ratio - 1) <= BAR else [f"{name} {precision} {optimizer}"]
    return failed


def real_peak(make: Any, dtype: torch.dtype, optimizer: str) -> int:
    """Bytes that the caching allocator handed out at most during two steps."""
    torch.cuda.empty_cache()
    with torch.device("cuda"):
        model, inputs = make()
    model = model.to(dtype).train()
    given = [v.to(dtype) if v.is_floating_point() else v for v in (inputs if isinstance(inputs, tuple) else (inputs,))]
    del inputs
    step = OPTIMIZERS[optimizer]([p for p in model.parameters() if p.requires_grad])
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        loss = model(*given)
        (loss if loss.dim() == 0 else loss.sum()).backward()
        del loss
        step.step()
        step.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated()
    del model, step, given
    return peak


if __name__ == "__main__":
    main()
