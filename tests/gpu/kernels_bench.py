"""Run on a machine with a CUDA GPU: the pass beside a device-to-device copy, PyTorch's add and PyTorch's separate passes.

    python tests/gpu/kernels_bench.py [--shapes]     # --shapes tries other shapes

Medians of 30 runs on buffers far larger than the L2. Bytes counted: each input and the output once.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch

from gpudoctor.kernels import launch
from gpudoctor.kernels.variant import Entry, Level, Variant

NUMEL = 1 << 28
SHAPES = [(256, 4, 4), (256, 4, 3), (256, 4, 5), (256, 2, 4), (256, 2, 6), (256, 1, 8), (512, 2, 2), (512, 2, 3), (512, 4, 2), (128, 4, 8)]


def median_ms(work: Callable[[], Any], runs: int = 30) -> float:
    for _ in range(5):
        work()
    spans = []
    for _ in range(runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        spans.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(b.elapsed_time(e) for b, e in spans)


def line(name: str, nbytes: int, ms: float, copy: float) -> None:
    speed = nbytes / ms * 1e3
    print(f"{name:52} {ms:8.4f} ms {speed / 1e12:7.3f} TB/s {speed / copy:6.3f} of a copy", flush=True)


def flat(dtype: torch.dtype, shapes: bool) -> None:
    a, b, c = (torch.randn(NUMEL, device="cuda", dtype=dtype) for _ in range(3))
    size = a.element_size()
    copy = 2 * size * NUMEL / median_ms(lambda: c.copy_(a)) * 1e3
    name = str(dtype).removeprefix("torch.")
    line(f"{name} device-to-device copy", 2 * size * NUMEL, 2 * size * NUMEL / copy * 1e3, copy)
    line(f"{name} torch.add into a third", 3 * size * NUMEL, median_ms(lambda: torch.add(a, b, out=c)), copy)
    for level in Level:
        line(f"{name} into a third, {level.name}", 3 * size * NUMEL, median_ms(lambda level=level: launch.run([[a, b]], [c], 0.5, level=level)), copy)
    for level in Level:
        line(f"{name} in place, {level.name}", 3 * size * NUMEL, median_ms(lambda level=level: launch.run([[c, b]], [c], 0.5, level=level)), copy)
    line(f"{name} into a third, deterministic, histogram", 3 * size * NUMEL, median_ms(lambda: launch.run([[a, b]], [c], 0.5, deterministic=True)), copy)
    line(f"{name} statistics only, histogram", size * NUMEL, median_ms(lambda: launch.run([[a]], None)), copy)
    line(f"{name} in three runs again: into a third, histogram", 3 * size * NUMEL, median_ms(lambda: launch.run([[a, b]], [c], 0.5)), copy)
    element = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}[dtype]
    for block, unroll, resident in SHAPES if shapes else []:
        for level in (Level.plain, Level.histogram):
            shape = Variant(Entry.flat, element, level=level, block=block, unroll=unroll, resident=resident)
            for chunk in (0, 4, 8, 16):  # 0: tiles in order
                launcher = launch.Launcher([[a, b]], [c], level, bool(chunk), shape, chunk)
                line(f"{name} block {block} unroll {unroll} resident {resident} {f'chunk {chunk}' if chunk else 'in order'} {level.name}", 3 * size * NUMEL, median_ms(functools.partial(launcher, 0.5), 12), copy)
    if dtype is torch.float32:
        line("float32 torch's separate passes", 3 * size * NUMEL, median_ms(lambda: separate(a, b, c), 5), copy)


def separate(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.add(a, b, out=c)
    c.mul_(0.5)
    torch.linalg.vector_norm(c), c.sum(), torch.linalg.vector_norm(c, float("inf")), c.count_nonzero(), c.isfinite().all(), torch.histc(c, 64)


def gpt2_sizes(tensors: int = 400, width: int = 768) -> list[int]:
    """Parameters of a GPT-2 of this width, block after block, until there are `tensors`."""
    block = [width, width, 3 * width * width, 3 * width, width * width, width, width, width, 4 * width * width, 4 * width, 4 * width * width, width]
    sizes = [50257 * width, 1024 * width]
    while len(sizes) < tensors - 2:
        sizes += block
    return [*sizes[: tensors - 2], width, width]


def many(dtype: torch.dtype) -> None:
    sizes = gpt2_sizes()
    inputs = [[torch.randn(n, device="cuda", dtype=dtype) for _ in range(2)] for n in sizes]
    outs = [torch.empty_like(copies[0]) for copies in inputs]
    total, size = sum(sizes), outs[0].element_size()
    big = torch.randn(total, device="cuda", dtype=dtype), torch.empty(total, device="cuda", dtype=dtype)
    copy = 2 * size * total / median_ms(lambda: big[1].copy_(big[0])) * 1e3
    name = f"{str(dtype).removeprefix('torch.')} {len(sizes)} tensors, {total / 1e6:.0f} M elements,"
    for level in Level:
        line(f"{name} {level.name}", 3 * size * total, median_ms(functools.partial(launch.Launcher(inputs, outs, level), 0.5)), copy)
    line(f"{name} histogram, addresses looked up", 3 * size * total, median_ms(lambda: launch.run(inputs, outs, 0.5)), copy)
    first, second = [c[0] for c in inputs], [c[1] for c in inputs]
    line(f"{name} torch._foreach_add", 3 * size * total, median_ms(lambda: torch._foreach_add(first, second)), copy)


def small() -> None:
    for numel in (1000, 100_000, 6_553_600, 26_214_400):
        a, b = (torch.randn(numel, device="cuda") for _ in range(2))
        c = torch.empty_like(a)
        ours = median_ms(functools.partial(launch.run, [[a, b]], [c], 0.5))
        torch_add = median_ms(functools.partial(torch.add, a, b, out=c))
        print(f"float32 {numel:10} elements: ours with statistics {ours * 1e3:.1f} us, torch.add alone {torch_add * 1e3:.1f} us", flush=True)


def main() -> None:
    shapes = "--shapes" in sys.argv
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    for dtype in (torch.float32, torch.bfloat16) if shapes else (torch.float32, torch.bfloat16, torch.float16):
        flat(dtype, shapes)
        many(dtype)
    small()


if __name__ == "__main__":
    main()
