"""The kernel in the probes' place: the same shapes and values as their own operations, one pass for all."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")

from gpudoctor.kernels import measure, reference  # noqa: E402
from gpudoctor.probes.measure import Measure  # noqa: E402


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The reference instead of the GPU; counts the passes."""
    seen: list[int] = []

    def run(inputs: list[list[torch.Tensor]], outs: None, seed: int = 0, level: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append(len(inputs))
        rows = [reference.describe(copies[0], seed) for copies in inputs]
        return torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows])

    monkeypatch.setattr(measure.launch, "run", run)
    monkeypatch.setattr(measure, "fits", lambda tensors: True)
    return seen


def gradients() -> list[torch.Tensor]:
    grads = [torch.randn(7, 5), torch.randn(300) * 1e-6, torch.tensor([0.0, -2.0, 0.0, 3.0])]
    return grads


def test_agrees_with_plain_operations(passes: list[int]) -> None:
    grads, plain, fast = gradients(), Measure(), measure.KernelMeasure(Measure())
    assert torch.allclose(fast.norms(grads), plain.norms(grads), rtol=1e-6)
    norms, details, histograms = fast.everything(grads)
    assert torch.equal(norms, fast.norms(grads))
    assert torch.allclose(details, plain.details(grads), rtol=1e-5, atol=1e-12)
    assert torch.equal(histograms, plain.histograms(grads))
    assert passes == [3, 3, 3]


def test_nothing_is_remembered(passes: list[int]) -> None:
    grads, fast = gradients(), measure.KernelMeasure(Measure())
    before = fast.norms(grads)
    grads[0].data.mul_(2)  # leaves no mark on the tensor
    assert fast.norms(grads)[0] == pytest.approx(2 * float(before[0]))
    assert passes == [3, 3]


def test_proofs_have_the_same_signs_on_ranks_without_the_kernel(passes: list[int]) -> None:
    fast, bucket = measure.KernelMeasure(Measure()), torch.randn(5000)
    assert torch.equal(fast.proof(bucket), Measure().proof(bucket))
    assert passes == []


def test_a_kernel_that_fails_is_given_up_for_good(passes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    fast, grads = measure.KernelMeasure(Measure()), gradients()

    def run(*_: object, **__: object) -> None:
        passes.append(0)
        raise RuntimeError("no kernel image for this card")

    monkeypatch.setattr(measure.launch, "run", run)
    for _ in range(2):
        assert all(torch.equal(a, b) for a, b in zip(fast.everything(grads), Measure().everything(grads), strict=True))
    assert torch.equal(fast.norms(grads), Measure().norms(grads))
    assert passes == [0]
    assert fast.failure == "RuntimeError: no kernel image for this card"


def test_what_does_not_fit_is_left_to_plain_operations() -> None:
    fast, grads = measure.KernelMeasure(Measure()), gradients()
    assert torch.equal(fast.norms(grads), Measure().norms(grads))
    assert torch.equal(fast.checksum(grads), Measure().checksum(grads))
    assert not measure.fits([])
    assert not measure.fits([torch.zeros(3, device="meta")])
