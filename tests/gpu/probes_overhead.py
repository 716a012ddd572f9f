"""What the probes cost on a GPU: a bare step against one with gradient statistics on every step, two processes in turns.

    python tests/gpu/probes_overhead.py [--rounds 12] [--steps 20] [--batch 16] [--budget 1]

A GPT-2-small-sized model in bf16 autocast, one rank. Each process trains its own copy and takes its turn when told.
Prints medians, their ratio (the target is 1.005 or less), the probes' own account, and how many steps have statistics.
Needs one CUDA GPU, torch, numpy and msgspec.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
WARMUP = 8


def worker(mode: str, out: str, batch: int, steps: int, rounds: int, tiny: bool, budget: float | None) -> None:
    """Train; a line on stdin asks for `steps` steps, the answer is their time in ns."""
    sys.path.insert(0, str(ROOT))
    if mode == "probes":
        from gpudoctor import probes
        from gpudoctor.launch.rank import arithmetic
        from gpudoctor.probes.settings import ProbeSettings

        session = probes.install(ProbeSettings(out, rank=0, world_size=1, nvtx=False, overhead_budget=budget), arithmetic())
    import torch

    device = "cpu" if tiny else "cuda"
    layers, width, heads, length, words = (2, 32, 2, 16, 64) if tiny else (12, 768, 12, 1024, 50257)
    torch.manual_seed(0)
    model = _gpt(layers, width, heads, length, words).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=not tiny)
    tokens = torch.randint(words, (8, batch, length + 1), device=device)

    def step(n: int) -> None:
        batch_tokens = tokens[n % 8]
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(batch_tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch_tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def wait() -> None:
        if not tiny:
            torch.cuda.synchronize()

    for n in range(WARMUP):
        step(n)
    wait()
    print(sum(p.numel() for p in model.parameters()), flush=True)
    for turn in range(rounds):
        if not sys.stdin.readline():
            return
        begin = time.perf_counter_ns()
        for n in range(steps):
            step(turn * steps + n)
        wait()
        print(time.perf_counter_ns() - begin, flush=True)
    if mode == "probes":
        probes.finish()
        print(f"statistics by {type(session.measure).__name__}", getattr(session.measure, "failure", ""), file=sys.stderr)


def _gpt(layers: int, width: int, heads: int, length: int, words: int) -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, 2))
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, width))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Gpt()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--budget", type=float, help="share of a step that probes may cost on the host; 1 looks at every step")
    parser.add_argument("--tiny", action="store_true", help="a toy model on the CPU, to try the script itself")
    parser.add_argument("--worker", nargs=2, metavar=("MODE", "OUT"))
    a = parser.parse_args()
    if a.worker:
        worker(*a.worker, a.batch, a.steps, a.rounds, a.tiny, a.budget)
        return
    with tempfile.TemporaryDirectory() as out:
        flags = ["--rounds", str(a.rounds), "--steps", str(a.steps), "--batch", str(a.batch), *(["--tiny"] if a.tiny else []), *(["--budget", str(a.budget)] if a.budget else [])]
        ranks = {
            mode: subprocess.Popen([sys.executable, __file__, "--worker", mode, out, *flags], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for mode in ("bare", "probes")
        }
        sizes = {mode: int(rank.stdout.readline()) for mode, rank in ranks.items() if rank.stdout}
        times: dict[str, list[float]] = {mode: [] for mode in ranks}
        for turn in range(a.rounds):
            order = list(ranks) if turn % 2 == 0 else list(ranks)[::-1]
            for mode in order:
                rank = ranks[mode]
                assert rank.stdin
                assert rank.stdout
                rank.stdin.write("go\n")
                rank.stdin.flush()
                times[mode].append(int(rank.stdout.readline()) / a.steps)
        for rank in ranks.values():
            rank.wait()
        _tell(sizes["bare"], times, Path(out) / "capture" / "probe.rank0.jsonl")


def _tell(size: int, times: dict[str, list[float]], records: Path) -> None:
    for mode, each in times.items():
        print(f"{mode:7} median {statistics.median(each) / 1e6:8.3f} ms a step, rounds {[round(t / 1e6, 2) for t in each]}")
    ratios = [p / b for p, b in zip(times["probes"], times["bare"], strict=True)]
    print(f"parameters {size:,}; ratio of medians {statistics.median(times['probes']) / statistics.median(times['bare']):.4f}, median of paired ratios {statistics.median(ratios):.4f}")
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    own = [r for t, r in lines if t == "overhead" and r["rank"] == 0]
    host = statistics.median(r["probe_ns"] for r in own) / 1e3
    sampled = Counter(r["step"] for t, r in lines if t == "grad_stat" and "step" in r)
    print(f"host time in probes {host:.0f} µs a step (median); gradient statistics in {len(sampled)} of {len(own)} steps; last interval {own[-1]['interval']}")
    failed = [r for t, r in lines if t == "fact" and r.get("kind") == "probe-failed"]
    print("probes that failed:", failed or "none")


if __name__ == "__main__":
    main()
