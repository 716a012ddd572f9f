"""What the probes cost on two CPU ranks: a small transformer, bare and watched, in turns.

    python tests/bench/probes_overhead_cpu.py [--rounds 8] [--steps 20]

Two ranks train bare, two watched at the default budget; each pair takes its turn when told, so that both meet the same
machine. Prints medians and the median of the paired ratios, by wall clock and by the ranks' own CPU time (which other
processes on the machine disturb less). The target is 1.02 by wall clock on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpudoctor.harness.ranks import free_port

ROOT = Path(__file__).parents[2]
WARMUP = 40


def worker(mode: str, out: str, steps: int, rounds: int) -> None:
    """One rank; a line on stdin asks for `steps` steps, the answer is their wall and CPU time in ns."""
    sys.path.insert(0, str(ROOT))
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if mode == "probes":
        from gpudoctor import probes
        from gpudoctor.probes.settings import ProbeSettings

        probes.install(ProbeSettings(out, rank=rank, world_size=world, nvtx=False))
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    layer = nn.TransformerEncoderLayer(256, 4, 1024, 0.0, activation="gelu", batch_first=True, norm_first=True)
    net = nn.Sequential(nn.Embedding(512, 256), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(256, 512))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        tokens = torch.randint(512, (8, 65))
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(WARMUP):
        step()
    print("ready", flush=True)
    for _ in range(rounds):
        if not sys.stdin.readline():
            return
        begin = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(steps):
            step()
        print(time.perf_counter_ns() - begin[0], time.process_time_ns() - begin[1], flush=True)
    if mode == "probes":
        probes.finish()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--worker", nargs=2, metavar=("MODE", "OUT"))
    a = parser.parse_args()
    if a.worker:
        worker(*a.worker, a.steps, a.rounds)
        return
    with tempfile.TemporaryDirectory() as out:
        pairs = {mode: _start(mode, out, a.rounds, a.steps) for mode in ("bare", "probes")}
        for pair in pairs.values():
            for rank in pair:
                _line(rank)
        wall: dict[str, list[float]] = {m: [] for m in pairs}
        cpu: dict[str, list[float]] = {m: [] for m in pairs}
        for turn in range(a.rounds):
            for mode in list(pairs)[:: 1 if turn % 2 == 0 else -1]:
                for rank in pairs[mode]:
                    assert rank.stdin
                    rank.stdin.write("go\n")
                    rank.stdin.flush()
                times = [tuple(map(int, _line(rank).split())) for rank in pairs[mode]]
                wall[mode].append(max(t[0] for t in times) / a.steps)
                cpu[mode].append(sum(t[1] for t in times) / a.steps / 2)
        for pair in pairs.values():
            for rank in pair:
                rank.wait()
        for name, both in (("wall", wall), ("cpu", cpu)):
            ratios = [p / b for p, b in zip(both["probes"], both["bare"], strict=True)]
            print(f"{name:4}: bare {statistics.median(both['bare']) / 1e6:.2f} ms, probes {statistics.median(both['probes']) / 1e6:.2f} ms, "
                  f"median of paired ratios {statistics.median(ratios):.4f}, all {[round(r, 3) for r in ratios]}")
        _account(Path(out) / "capture" / "probe.rank0.jsonl")


def _start(mode: str, out: str, rounds: int, steps: int) -> list[subprocess.Popen[str]]:
    shared = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--worker", mode, out, "--rounds", str(rounds), "--steps", str(steps)]
    return [subprocess.Popen(command, env={**shared, "RANK": str(r)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for r in range(2)]


def _line(rank: subprocess.Popen[str]) -> str:
    assert rank.stdout
    return rank.stdout.readline()


def _account(records: Path) -> None:
    own = [r for t, r in map(json.loads, records.read_text().splitlines()) if t == "overhead" and "step" in r and r["step"] >= WARMUP]
    share = sum(r["probe_ns"] for r in own) / sum(r["step_ns"] for r in own)
    print(f"by the recorder's own account {share:.4f} of the step; sampling interval at the end {own[-1]['interval']}")


if __name__ == "__main__":
    main()
