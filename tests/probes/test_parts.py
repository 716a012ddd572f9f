"""The parts of the recorder, each by itself: arithmetic, budget, file, loss graph, frames."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpudoctor.probes.budget import FREE_STEPS, Budget  # noqa: E402
from gpudoctor.probes.loss import describe  # noqa: E402
from gpudoctor.probes.measure import LOWEST, Measure  # noqa: E402
from gpudoctor.probes.recorder import Recorder  # noqa: E402


def test_details_and_norms_against_float64() -> None:
    tensors = [torch.randn(33, 7), torch.tensor([0.0, -3.0, float("nan"), float("inf")]), torch.zeros(5, dtype=torch.bfloat16)]
    measure = Measure()
    assert measure.norms(tensors[:1])[0].item() == pytest.approx(tensors[0].double().norm().item(), rel=1e-6)
    mean, absmax, zeros, bad, total = measure.details(tensors[:1])[0].tolist()
    assert (mean, total) == pytest.approx((tensors[0].double().mean().item(), tensors[0].double().sum().item()))
    assert (absmax, zeros, bad) == (tensors[0].abs().max().item(), 0, 0)
    assert measure.details(tensors[1:2])[0, 2:4].tolist() == [1, 2]
    assert measure.details(tensors[2:])[0, 2].item() == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_histogram_counts_powers_of_two(dtype: object) -> None:
    values = torch.tensor([0.0, 1.0, -1.5, 2.0, 3.9, 0.25, 0.0], dtype=dtype)
    counts = Measure().histograms([values])[0]
    assert {k + LOWEST: int(c) for k, c in enumerate(counts.tolist()) if c} == {-2: 1, 0: 2, 1: 2}
    assert Measure().histograms([torch.tensor([float("inf"), float("nan"), 1.0])])[0].sum().item() == 1


def test_proof_is_linear_and_sees_every_place() -> None:
    measure, generator = Measure(), torch.Generator().manual_seed(1)
    for size in (1, 5, 1024, 5000):
        a, b = torch.randn(size, generator=generator), torch.randn(size, generator=generator)
        left, right = measure.proof(a)[:2] + measure.proof(b)[:2], measure.proof(a + b)[:2]
        assert torch.allclose(left, right, atol=1e-3)
        assert measure.proof(a)[2].item() == pytest.approx(float(a.double().square().sum()), rel=1e-5)
    whole = measure.proof(a)
    for place in (0, 1023, 1024, 4999):
        hole = a.clone()
        hole[place] = 0
        assert abs(float(measure.proof(hole)[1] - whole[1])) == pytest.approx(abs(float(a[place])), abs=1e-3)


def test_checksum_is_exact_and_does_not_hang_on_alignment() -> None:
    measure, x = Measure(), torch.randn(1001)
    shifted = torch.cat((torch.zeros(1), x))[1:]
    assert measure.checksum([x]).item() == measure.checksum([shifted]).item()
    changed = x.clone()
    changed[500] = torch.nextafter(changed[500], torch.tensor(9.0))
    assert measure.checksum([x]).item() != measure.checksum([changed]).item()
    assert measure.checksum([x, changed]).item() != measure.checksum([changed, x]).item()


def test_budget_lengthens_by_powers_of_two_and_recovers() -> None:
    budget = Budget(0.02)
    for step in range(FREE_STEPS):
        assert budget.samples(step)
        budget.after(step, 10_000, 100_000, True)
    assert budget.interval == 8
    sampled = [s for s in range(FREE_STEPS, 64) if budget.samples(s)]
    assert sampled == [32, 40, 48, 56]
    for step in range(100, 140):
        budget.after(step, 100, 100_000, True)
    assert budget.interval == 1


def test_recorder_survives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path / "probe.rank0.jsonl")
    recorder.add("fact", {"rank": 0, "kind": "a", "value": float("nan")})
    recorder.flush()

    def full(fd: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    for _ in range(3):
        recorder.add("fact", {"rank": 0})
        recorder.flush()
    monkeypatch.undo()
    recorder.add("fact", {"rank": 0, "kind": "b"})
    recorder.close()
    lines = (tmp_path / "probe.rank0.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [["fact", {"rank": 0, "kind": "a", "value": None}]]
    assert capsys.readouterr().err.count("recording stopped") == 1


def test_recorder_is_bounded(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "probe.rank0.jsonl")
    recorder.close()
    for _ in range(30_000):
        recorder.add("fact", {"rank": 0})
    assert recorder.dropped == 10_000


def test_a_restarted_rank_keeps_the_old_file(tmp_path: Path) -> None:
    for attempt in (0, 1):
        recorder = Recorder(tmp_path / "probe.rank0.jsonl", attempt)
        recorder.add("fact", {"rank": 0, "kind": str(attempt)})
        recorder.close()
    assert {p.name for p in tmp_path.iterdir()} == {"probe.rank0.jsonl", "probe.rank0.jsonl.before1"}


def _loss() -> tuple[object, object]:
    out = torch.nn.Linear(4, 2)(torch.randn(3, 4))
    return out, torch.nn.functional.mse_loss(out, torch.randn(3, 2))


def test_factors_above_the_loss() -> None:
    out, loss = _loss()
    assert describe(loss * 2, set()) == describe(2 * loss, set())
    assert describe(loss * 2 / 8, set()).factor == 0.25
    assert describe(loss * 2, set()).factors == (2.0,)
    assert describe(loss, set()).base == "mean"
    assert describe(out.square().mean().float() / 4, set()).factor == 0.25
    assert describe(torch.nn.functional.mse_loss(out, torch.zeros(3, 2), reduction="sum") / 6, set()).base == "sum"
    assert describe(loss + 0.1 * out.abs().mean(), set()).base == "mean"
    assert describe(loss * out.mean(), set()).base == "unknown"
    assert describe(torch.zeros(()), set()) is None


def test_a_loss_scale_is_no_factor() -> None:
    _, loss = _loss()
    scale = torch.tensor([1024.0])
    assert describe(loss * scale / 4, {scale.data_ptr()}).factor == 0.25
