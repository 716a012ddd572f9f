"""The double-precision reference, against answers known by hand and by `math`."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from gpudoctor.kernels import reference  # noqa: E402
from gpudoctor.kernels.statistics import Statistics  # noqa: E402


def described(values: list[float], seed: int = 0, dtype: object = torch.float32) -> tuple[dict[str, float], list[int]]:
    scalars, bins = reference.describe(torch.tensor(values, dtype=dtype), seed)
    return dict(zip(reference.SCALARS, scalars.tolist(), strict=True)), bins.tolist()


def test_exact_answers() -> None:
    got, bins = described([3.0, -4.0, 0.0, 1.0, -0.0, 0.5])
    assert (got["norm2"], got["sum"], got["absmax"], got["zeros"], got["nonfinite"]) == (26.25, 0.5, 4.0, 2, 0)
    assert {n - 40: c for n, c in enumerate(bins) if c} == {1: 1, 2: 1, 0: 1, -1: 1}


@pytest.mark.parametrize(("value", "bin_"), [
    (1.0, 40), (math.nextafter(2.0, 0.0), 41), (1.9999999, 40), (2.0, 41), (2.0**-40, 0), (2.0**-39, 1), (2.0**-60, 0), (1e-45, 0),
    (2.0**23, 63), (2.0**22, 62), (3e38, 63), (-0.75, 39),
])
def test_histogram_edges(value: float, bin_: int) -> None:
    _, bins = described([value])
    stored = float(torch.tensor(value))
    assert bins.index(1) == (bin_ if stored == value else max(0, min(63, math.floor(math.log2(abs(stored))) + 40)))
    assert sum(bins) == 1


def test_nonfinite_and_denormals() -> None:
    got, bins = described([float("nan"), float("inf"), -float("inf"), 1e-42, 2.0])
    assert got["nonfinite"] == 3
    assert got["absmax"] == float("inf")
    assert math.isnan(got["sum"])
    assert (got["zeros"], sum(bins), bins[0]) == (0, 2, 1)
    only_nan, _ = described([float("nan"), 1.0])
    assert only_nan["absmax"] == 1.0


def test_empty() -> None:
    got, bins = described([])
    assert set(got.values()) == {0.0}
    assert not any(bins)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(5003)
    whole = reference.describe(x, 7)
    monkeypatch.setattr(reference, "_CHUNK", 911)
    parts = reference.describe(x, 7)
    assert torch.allclose(whole[0], parts[0], rtol=1e-12)
    assert torch.equal(whole[1], parts[1])


@given(st.lists(st.floats(-(2.0**50), 2.0**50, width=32), max_size=200), st.integers(0, 2**40))
@settings(deadline=None, max_examples=60)
def test_against_math(values: list[float], seed: int) -> None:
    got, bins = described(values, seed)
    assert got["norm2"] == pytest.approx(math.fsum(v * v for v in values), rel=1e-12)
    assert got["sum"] == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-9 * math.fsum(map(abs, values)))
    assert got["zeros"] == sum(v == 0 for v in values)
    assert sum(bins) == len(values) - got["zeros"]
    assert abs(got["sketch"]) <= math.fsum(map(abs, values)) * (1 + 1e-12) + 1e-300


def test_signs_are_a_function_of_index_and_seed() -> None:
    whole = reference.signs(0, 40_000, 3)
    assert set(whole.unique().tolist()) == {-1.0, 1.0}
    for begin, count in ((0, 1), (1, 9), (4095, 4097), (39_990, 10)):
        assert torch.equal(reference.signs(begin, count, 3), whole[begin : begin + count])
    other = reference.signs(0, 40_000, 4)
    assert abs(float((whole * other).mean())) < 0.05
    groups = whole[::8]
    assert abs(float(groups.mean())) < 0.05
    assert all(abs(float((groups[:-lag] * groups[lag:]).mean())) < 0.06 for lag in (1, 2, 32, 64, 128, 512))


def test_sketch_is_linear_and_sees_a_change() -> None:
    a, b = torch.randn(10_000, dtype=torch.float64), torch.randn(10_000, dtype=torch.float64)
    sketch = lambda x: float((x * reference.signs(0, 10_000, 1)).sum())  # noqa: E731
    assert sketch((a + b) / 2) == pytest.approx((sketch(a) + sketch(b)) / 2, abs=1e-9)
    swapped = a.clone()
    swapped[[100, 5000]] = a[[5000, 100]]
    assert sum(abs(float(((swapped - a) * reference.signs(0, 10_000, seed)).sum())) > 1e-6 for seed in range(20)) >= 5  # the sum is blind to it
    assert float(swapped.sum() - a.sum()) == pytest.approx(0, abs=1e-9)


def test_sketch_estimates_the_norm() -> None:
    x = torch.randn(4096, dtype=torch.float64)
    estimate = sum(float((x * reference.signs(0, 4096, seed)).sum()) ** 2 for seed in range(300)) / 300
    assert estimate == pytest.approx(float(x.square().sum()), rel=0.35)


def test_statistics_read_a_row() -> None:
    scalars, bins = reference.describe(torch.tensor([3.0, -4.0, 0.0]))
    said = Statistics.of(3, scalars.tolist(), bins.tolist())
    assert (said.norm, said.mean, said.zeros, said.histogram) == (5.0, pytest.approx(-1 / 3), 1, {1: 1, 2: 1})
