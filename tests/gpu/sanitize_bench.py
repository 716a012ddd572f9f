"""What the sanitizer costs: bare step, gpudoctor's on every step, gpudoctor's as `run` switches it, torch's own.

Four processes on one GPU, in turns.

    python tests/gpu/sanitize_bench.py [--rounds 6] [--steps 10] [--shape gpt2-small --batch 32]

Each process trains the same model and takes its turn when told. Prints the median step of each and the ratios, for a
GPT-2-small-sized model in bf16 and for a small one that is bound by launches. Needs one CUDA GPU.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any

SHAPES = {"gpt2-small": (12, 768, 12, 8, 1024), "tiny": (4, 256, 4, 8, 128)}
MODES = ("bare", "gpudoctor", "windows", "torch")


def worker(mode: str, shape: str, steps: int, size: int) -> None:
    import torch
    from torch import nn

    layers, width, heads, batch, length = SHAPES[shape]
    batch = size or batch
    torch.manual_seed(0)
    embed = nn.Embedding(8192, width)
    block = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, activation="gelu", batch_first=True, norm_first=True)
    model = nn.ModuleList([embed, nn.TransformerEncoder(block, layers, enable_nested_tensor=False), nn.Linear(width, 8192)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(8192, (batch, length + 1)).pin_memory()
    side = torch.cuda.Stream()
    sanitizer: Any = None
    windows: Any = None
    if mode in ("gpudoctor", "windows"):
        from gpudoctor.probes.sanitize.sanitizer import Sanitizer
        from gpudoctor.probes.sanitize.windows import Windows

        sanitizer = Sanitizer()
        sanitizer.switch_on()
        windows = Windows() if mode == "windows" else None
    elif mode == "torch":
        from torch.cuda import _sanitizer

        _sanitizer.enable_cuda_sanitizer()

    watched, last = 0, time.perf_counter_ns()

    def step() -> None:
        nonlocal watched, last
        train()
        if windows is not None:
            watched += sanitizer.active
            now = time.perf_counter_ns()
            watch = windows.after(now - last)
            if watch != sanitizer.active:
                (sanitizer.switch_on if watch else sanitizer.switch_off)()
            last = time.perf_counter_ns()

    def train() -> None:
        with torch.cuda.stream(side):
            data = tokens.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        data.record_stream(torch.cuda.current_stream())
        with torch.autocast("cuda", torch.bfloat16):
            hidden = model[1](model[0](data[:, :-1]))
            loss = nn.functional.cross_entropy(model[2](hidden).flatten(0, 1).float(), data[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    for _ in range(5):
        try:
            step()
        except BaseException as error:
            print(f"{mode}: {error!r}, from {error.__cause__!r}, {error.__context__!r}", file=sys.stderr)
            raise
    torch.cuda.synchronize()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        print((time.perf_counter() - start) / steps * 1e3, flush=True)
    if sanitizer is not None:
        sanitizer.switch_off()
        print(f"{len(sanitizer.races)} races, {sanitizer.detector.order} operations, failures: {sanitizer.mode.failure or 0}", watched and f"watched {watched} steps", flush=True)


def bench(shape: str, rounds: int, steps: int, size: int) -> None:
    workers = {
        mode: subprocess.Popen([sys.executable, __file__, "--worker", mode, "--shape", shape, "--steps", str(steps), "--batch", str(size)],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for mode in MODES
    }
    times: dict[str, list[float]] = {mode: [] for mode in MODES}
    for mode, process in list(workers.items()):
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            print(f"{shape:11} {mode:10} died")
            del workers[mode]
    for _ in range(rounds):
        for mode, process in workers.items():
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            times[mode].append(float(process.stdout.readline()))
    for mode, process in workers.items():
        rest, _ = process.communicate()
        if rest.strip():
            print(f"{shape} {mode}: {rest.strip()}")
    bare = statistics.median(times["bare"])
    for mode in workers:
        ratios = [t / b for t, b in zip(times[mode], times["bare"], strict=True)]
        print(f"{shape:11} {mode:10} {statistics.median(times[mode]):8.2f} ms a step  × {statistics.median(times[mode]) / bare:.2f}  (rounds {min(ratios):.2f}–{max(ratios):.2f})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker")
    parser.add_argument("--shape", choices=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=0, help="sequences a step; 0 is the shape's own")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker, options.shape, options.steps, options.batch)
        return
    for shape in [options.shape] if options.shape else SHAPES:
        bench(shape, options.rounds, options.steps, options.batch)


if __name__ == "__main__":
    main()
