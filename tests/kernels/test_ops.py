"""The PyTorch operators, on the CPU."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")

from gpudoctor.kernels import ops, reference  # noqa: E402


def test_aggregate_gives_mean_and_statistics() -> None:
    a, b = torch.randn(1001), torch.randn(1001)
    out, scalars, bins = torch.ops.gpudoctor.aggregate([a, b], 0.5, 3)
    assert torch.allclose(out, (a + b) / 2)
    want, want_bins = reference.describe(out, 3)
    assert torch.equal(scalars[0], want)
    assert torch.equal(bins[0], want_bins)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_are_of_what_is_stored(dtype: object) -> None:
    a = torch.full((10,), 1.0, dtype=dtype)
    b = torch.full((10,), 2.0**-14, dtype=dtype)  # lost in rounding
    out, scalars, _ = ops.aggregate([a, b], 1.0, 0)
    assert out.dtype is dtype
    assert float(scalars[0, 1]) == float(out.double().sum()) == 10.0


def test_aggregate_is_differentiable_in_its_inputs() -> None:
    a, b = (torch.randn(50, requires_grad=True) for _ in range(2))
    out, scalars, _ = ops.aggregate([a, b], 0.25, 0)
    assert not scalars.requires_grad
    out.square().sum().backward()
    assert torch.allclose(a.grad, out.detach() * 0.5)
    assert torch.equal(a.grad, b.grad)


def test_in_place_over_many_tensors() -> None:
    grads = [torch.randn(n) for n in (3, 0, 700)]
    others = [torch.randn_like(g) for g in grads]
    want = [(g + o) / 2 for g, o in zip(grads, others, strict=True)]
    scalars, bins = ops.aggregate_(grads, [t for pair in zip([g.clone() for g in grads], others, strict=True) for t in pair], 0.5, 0)
    assert all(torch.allclose(g, w) for g, w in zip(grads, want, strict=True))
    assert scalars.shape == (3, 6)
    assert bins.sum(1).tolist() == [3, 0, 700]


def test_statistics_of_channels_last_and_views() -> None:
    picture = torch.randn(2, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    strided = torch.randn(20, 2)[:, 0]
    scalars, bins = ops.statistics([picture, strided], 0)
    assert float(scalars[0, 0]) == pytest.approx(float(picture.double().square().sum()))
    assert float(scalars[1, 1]) == pytest.approx(float(strided.double().sum()))
    assert bins.sum(1).tolist() == [150, 20]
    assert ops.statistics([], 0)[0].shape == (0, 6)


def test_wrong_sharing_is_refused() -> None:
    with pytest.raises(ValueError, match="3 inputs cannot be shared out among 2 outputs"):
        ops.aggregate_([torch.zeros(2)] * 2, [torch.zeros(2)] * 3, 1.0, 0)


@pytest.mark.parametrize("call", [
    lambda: (ops.aggregate, ([torch.randn(9, requires_grad=True), torch.randn(9)], 0.5, 1)),
    lambda: (ops.aggregate_, ([torch.zeros(4), torch.zeros(2, 3)], [torch.ones(4), torch.ones(4), torch.ones(2, 3), torch.ones(2, 3)], 0.5, 1)),
    lambda: (ops.statistics, ([torch.randn(5), torch.randn(2, 2)], 1)),
])
def test_registration(call: object) -> None:
    op, arguments = call()
    torch.library.opcheck(op._opoverload, arguments)


def test_compiles_without_a_break() -> None:
    exported = torch.export.export(_Mean(), ([torch.randn(8), torch.randn(8)],))
    assert "gpudoctor.aggregate" in str(exported.graph)


class _Mean(torch.nn.Module):
    def forward(self, parts: list[torch.Tensor]) -> torch.Tensor:
        return torch.ops.gpudoctor.aggregate(parts, 0.5, 0)[0]
