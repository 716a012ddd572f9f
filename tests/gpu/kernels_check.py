"""Run on a machine with a CUDA GPU: every kernel against double precision. Exits 1 on the first batch that disagrees.

    python tests/gpu/kernels_check.py [--small]
"""

from __future__ import annotations

import sys

import torch

from gpudoctor.kernels import launch, ops, reference
from gpudoctor.kernels.measure import KernelMeasure
from gpudoctor.kernels.peer import aggregate_across
from gpudoctor.kernels.variant import Level
from gpudoctor.probes.measure import Measure

checks = 0


def expect(good: bool, what: str) -> None:
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAILED after {checks} checks: {what}")


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    wide = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.element_size()]
    nan = a.isnan() & b.isnan()
    return bool((nan | (a.view(wide) == b.view(wide))).all())


def expected_out(inputs: list[torch.Tensor], scale: float) -> torch.Tensor:
    total = inputs[0].float()
    for other in inputs[1:]:
        total = total + other.float()
    return (total * torch.tensor(scale, dtype=torch.float32, device=total.device)).to(inputs[0].dtype)


def agree(scalars: torch.Tensor, bins: torch.Tensor, stored: torch.Tensor, seed: int, what: str) -> None:
    want, want_bins = reference.describe(stored, seed)
    got, want = scalars.tolist(), want.tolist()
    expect(got[3:] == want[3:], f"{what}: absmax, zeros, nonfinite {got} {want}")
    expect(torch.equal(bins, want_bins), f"{what}: histogram {bins - want_bins}")
    if want[5]:
        expect(got[0] != got[0] or got[0] == float("inf") or not got[0] < float("inf"), f"{what}: norm of non-finite {got}")
        return
    room = 4e-6 * (want[0] * stored.numel()) ** 0.5 + 1e-300
    expect(abs(got[0] - want[0]) <= 4e-6 * want[0] + 1e-36, f"{what}: norm2 {got} {want}")
    expect(abs(got[1] - want[1]) <= room + 1e-36 and abs(got[2] - want[2]) <= room + 1e-36, f"{what}: sums {got} {want}")


def shifted(values: torch.Tensor, offset: int) -> torch.Tensor:
    room = torch.full((values.numel() + offset + 16,), float("nan"), dtype=values.dtype, device=values.device)
    view = room[offset : offset + values.numel()]
    view.copy_(values)
    return view


def check_flat(sizes: list[int]) -> None:
    generator = torch.Generator("cuda").manual_seed(torch.seed() % 2**62)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for copies in (1, 2, 3, 5, 8):
            for numel in sizes:
                for offsets in ([0] * 9, [1] * 9, [3] * 9, list(range(9))):
                    for kind in ("random", "exact", "special"):
                        values = [make(kind, numel, dtype, generator) for _ in range(copies)]
                        inputs = [shifted(v, o) for v, o in zip(values, offsets, strict=False)]
                        out = shifted(torch.empty(numel, dtype=dtype, device="cuda").fill_(float("nan")), offsets[8])
                        scale, seed, what = 1.0 / copies, numel + copies, f"{dtype} {copies} copies {numel} elements offsets {offsets} {kind}"
                        scalars, bins = launch.run([inputs], [out], scale, seed=seed)
                        want = expected_out(values, scale)
                        expect(same_bits(out, want), what)
                        agree(scalars[0], bins[0], want, seed, what)
                        steady = [launch.run([inputs], [out], scale, seed=seed, deterministic=True) for _ in range(2)]
                        expect(same_bits(out, want), f"{what}: deterministic")
                        agree(steady[0][0][0], steady[0][1][0], want, seed, f"{what}: deterministic")
                        expect(same_bits(steady[0][0], steady[1][0]) and torch.equal(steady[0][1], steady[1][1]), f"{what}: the same bits again")
                        launch.run([inputs], [inputs[0]], scale, level=Level.plain)
                        expect(same_bits(inputs[0], want), f"{what}: in place, plain")
                        if copies == 1:
                            agree(*(r[0] for r in launch.run([values], None, 1.0, seed=5)), values[0], 5, f"{what}: statistics only")


def make(kind: str, numel: int, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    if kind == "exact":  # sums that every order adds up to the same bits
        return torch.randint(-8, 9, (numel,), device="cuda", generator=generator).to(dtype)
    x = torch.randn(numel, device="cuda", generator=generator) * torch.exp2(-torch.randint(0, 30, (numel,), device="cuda", generator=generator).float())
    if kind == "special":
        odd = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, -1e-45, 3e18, 65504.0, 6e-8], device="cuda")
        pick = torch.randint(0, 40, (numel,), device="cuda", generator=generator)
        x = torch.where(pick < len(odd), odd[pick.clamp(max=len(odd) - 1)], x)
    return x.to(dtype)


def check_many() -> None:
    generator = torch.Generator("cuda").manual_seed(1)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for copies in (1, 2, 3):
            sizes = [768, 0, 1, 768 * 3072, 3, 5000, 0, 70001, 2304, 33] + [int(n) for n in torch.randint(1, 9000, (200,))]
            inputs = [[shifted(make("random", n, dtype, generator), (t * 5) % 7) for _ in range(copies)] for t, n in enumerate(sizes)]
            want = [expected_out(c, 0.5) for c in inputs]
            scalars, bins = launch.run(inputs, [c[0] for c in inputs], 0.5, seed=9)
            for t, n in enumerate(sizes):
                expect(same_bits(inputs[t][0], want[t]), f"many {dtype} {copies} tensor {t} of {n}")
                agree(scalars[t], bins[t], want[t], 9, f"many {dtype} {copies} tensor {t} of {n}")


def check_streams() -> None:
    streams = [torch.cuda.Stream() for _ in range(8)]
    inputs = [[torch.randn(300_000 + 17 * n, device="cuda") for _ in range(2)] for n in range(8)]
    outs = [torch.empty_like(c[0]) for c in inputs]
    results = {}
    torch.cuda.synchronize()
    for turn in range(20):
        for n, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results[n] = launch.run([inputs[n]], [outs[n]], 0.5, seed=turn)
    torch.cuda.synchronize()
    for n in range(8):
        expect(same_bits(outs[n], expected_out(inputs[n], 0.5)), f"stream {n}")
        agree(results[n][0][0], results[n][1][0], outs[n], 19, f"stream {n}")


def check_large() -> None:
    numel = 2**31 + 12345
    a = torch.empty(numel, dtype=torch.bfloat16, device="cuda")
    for begin in range(0, numel, 1 << 28):
        part = a[begin : begin + (1 << 28)]
        part.copy_(torch.randint(-3, 4, (part.numel(),), device="cuda", dtype=torch.int8))
    b = torch.full_like(a, 2.0)
    out = torch.empty_like(a)
    scalars, bins = launch.run([[a, b]], [out], 1.0, seed=3)
    a += b
    expect(torch.equal(out, a), "2^31 + 12345 elements")
    agree(scalars[0], bins[0], a, 3, "2^31 + 12345 elements")


def check_operators() -> None:
    x, y = (torch.randn(1001, device="cuda", requires_grad=True) for _ in range(2))
    out, _, _ = torch.ops.gpudoctor.aggregate([x, y], 0.5, 1)
    out.square().sum().backward()
    expect(torch.allclose(x.grad, out.detach()), "gradient through aggregate")
    for op, args in ((ops.aggregate, ([x.detach(), y.detach()], 0.5, 1)), (ops.statistics, ([x.detach(), y.detach()], 1))):
        torch.library.opcheck(op._opoverload, args)
        expect(True, "opcheck")
    out = torch.empty(1001, device="cuda")
    scalars, bins = aggregate_across(out, [x.detach(), y.detach()], 0.5, 4)
    expect(same_bits(out, expected_out([x.detach(), y.detach()], 0.5)), "aggregate_across")
    agree(scalars[0], bins[0], out, 4, "aggregate_across")
    grads = [torch.randn(n, device="cuda") for n in (3, 70_001, 512)]
    plain, fast = Measure(), KernelMeasure(Measure())
    expect(torch.allclose(fast.norms(grads), plain.norms(grads), rtol=1e-5), "measure: norms")
    for name, got, want in zip(("norms", "details", "histograms"), fast.everything(grads), plain.everything(grads), strict=True):
        expect(torch.allclose(got, want, rtol=1e-4, atol=1e-3), f"measure: {name}")
    expect(fast.failure == "", f"measure: {fast.failure}")
    factor = torch.tensor([1 / 1024], device="cuda")
    grad = torch.randn(1000, device="cuda") * 1024
    want = grad * factor
    launch.run([[grad]], [grad], 1.0, factor=factor)
    expect(torch.equal(grad, want), "unscale by a factor on the device")


def main() -> None:
    small = "--small" in sys.argv
    check_flat([0, 1, 5, 1000, 16385, 100_003] if small else [0, 1, 3, 7, 31, 1000, 4096, 32768, 32769, 100_003, (1 << 21) + 3])
    check_many()
    check_streams()
    check_operators()
    check_large()
    torch.cuda.synchronize()
    print(f"kernels: {checks} checks passed on {torch.cuda.get_device_name()}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
