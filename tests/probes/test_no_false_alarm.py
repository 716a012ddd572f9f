"""Ten thousand clean all-reduces give no alarm, in three dtypes, on 2, 3 and 8 ranks, summed in different orders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpudoctor.probes.measure import Measure  # noqa: E402
from gpudoctor.rulebook.detect import detect_in_tables  # noqa: E402
from gpudoctor.rulebook.load import load_rules  # noqa: E402
from gpudoctor.timeline.store import Store  # noqa: E402
from tests.probes.judge import diagnose  # noqa: E402

RULE = load_rules().choose(["GD328"])
KINDS = ("gauss", "heavy", "biased", "constant", "sparse", "tiny")


def reduced(shares: list[Any], way: int) -> Any:
    """The mean in the shares' own dtype: DDP's division first, then a chain, a reversed chain or a tree."""
    parts = [s * (1.0 / len(shares)) for s in shares]
    parts = parts[::-1] if way == 1 else parts
    while len(parts) > 1:
        parts = [sum(parts[i : i + 2][1:], parts[i]) for i in range(0, len(parts), 2)] if way == 2 else [parts[0] + parts[1], *parts[2:]]
    return parts[0]


def gradient(kind: str, size: int, generator: Any, common: Any) -> Any:
    noise = torch.randn(size, generator=generator)
    if kind == "heavy":
        return noise.exp() * torch.sign(noise)
    if kind == "biased":
        return 3.0 + 0.01 * noise
    if kind == "constant":
        return torch.full((size,), float(noise[0]))
    if kind == "sparse":
        return noise * (torch.rand(size, generator=generator) < 0.05)
    return 1e-6 * noise if kind == "tiny" else common + 0.3 * noise


def bucket_rows(dtype: Any, world: int, count: int, seed: int, lose: int = -1) -> list[dict[str, Any]]:
    """Rows of `count` all-reduces; all-reduce number `lose` gives zeros to the last rank."""
    measure, generator = Measure(), torch.Generator().manual_seed(seed)
    rows = []
    for n in range(count):
        size = (7, 700, 3000)[n % 3]
        common = torch.randn(size, generator=generator)
        shares = [gradient(KINDS[n % len(KINDS)], size, generator, common).to(dtype) for _ in range(world)]
        result = reduced(shares, n % 3)
        after = measure.proof(result).tolist()
        for rank, share in enumerate(shares):
            before = measure.proof(share).tolist()
            got = [0.0, 0.0, 0.0] if n == lose and rank == world - 1 else after
            rows.append({
                "rank": rank, "step": n, "bucket": n % 4, "micro_batch": 0, "model_id": 0, "path": "ddp", "world": world, "numel": size,
                "dtype": str(dtype).removeprefix("torch."), "op": "mean", "local_sum": before[0], "local_sketch": before[1], "local_norm2": before[2],
                "reduced_sum": got[0], "reduced_sketch": got[1], "reduced_norm2": got[2],
            })
    return rows


def alarms(rows: list[dict[str, Any]]) -> list[Any]:
    store = Store()
    store.add_rows("bucket", rows)
    return [e for _, e in detect_in_tables(RULE, store, ["run"]).evidence]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("world", [2, 3, 8])
def test_clean_all_reduces(dtype: str, world: int) -> None:
    assert alarms(bucket_rows(getattr(torch, dtype), world, 1112, seed=world)) == []


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("world", [2, 3, 8])
def test_one_lost_result_among_many(dtype: str, world: int) -> None:
    found = alarms(bucket_rows(getattr(torch, dtype), world, 60, seed=5, lose=42))
    assert [(e.rank, e.values["step"], e.values["bucket"]) for e in found] == [(world - 1, 42, 2)]


REAL = """
model = DDP(nn.Sequential(nn.Linear(64, 200), nn.ReLU(), nn.Linear(200, 4)).to(torch.{dtype}), bucket_cap_mb=0.02)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    opt.zero_grad(set_to_none=True)
    model(torch.randn(4, 64, dtype=torch.{dtype})).float().square().mean().backward()
    opt.step()
"""


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_real_gloo_all_reduces(tmp_path: Path, dtype: str) -> None:
    assert diagnose(tmp_path, REAL.format(dtype=dtype), ranks=3) == []
