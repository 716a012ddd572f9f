"""What experiments conclude from numbers, right and wrong ones."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'gpudoctor[run]'")

from gpudoctor.harness import recovery
from gpudoctor.harness.experiments import aggregate, amp, drift, launch, preallocate, scale


def curve(losses: dict[int, float], attempt: int = 0) -> list[dict[str, object]]:
    return [{"attempt": attempt, "step": step, "loss": loss.hex()} for step, loss in losses.items()]


STRAIGHT = {0: 3.0, 1: 2.5, 2: 2.25, 3: 2.0}
END = {"weights": ["0x1p0"], "limits": [], "setting": {}}


def recovered(killed: list[dict[str, object]], end: dict[str, object] = END) -> tuple[str, str]:
    result = recovery.compare(curve(STRAIGHT), killed, END, end, 4, 3, 2)
    return result.state, result.verdict


def test_recovery_bit_for_bit() -> None:
    state, verdict = recovered(curve({0: 3.0, 1: 2.5, 2: 2.25}) + curve({2: 2.25, 3: 2.0}, 1))
    assert state == "ok"
    assert "from step 2; 1 finished step came again, none was lost" in verdict


@pytest.mark.parametrize(("killed", "says"), [
    (curve({0: 3.0, 1: 2.5, 2: 2.25}) + curve({3: 2.0 + 2**-50}, 1), "differs from the undisturbed run at steps [3]"),
    (curve({0: 3.0, 1: 2.5}) + curve({3: 2.0}, 1), "steps [2] were lost"),
    (curve({0: 3.0, 1: 2.5, 2: 2.25}), "no restart went on"),
    (curve({0: 3.0, 1: 2.5, 2: 2.125}) + curve({2: 2.25, 3: 2.0}, 1), "at steps [2]"),
])
def test_recovery_that_went_wrong(killed: list[dict[str, object]], says: str) -> None:
    state, verdict = recovered(killed)
    assert state == "bad"
    assert says in verdict


def test_recovery_with_other_weights() -> None:
    assert recovered(curve({0: 3.0, 1: 2.5, 2: 2.25}) + curve({3: 2.0}, 1), {**END, "weights": ["0x1p1"]})[0] == "bad"


def test_drift_allows_rounding_only() -> None:
    assert drift.agrees(9e-6, 1e-7)
    assert not drift.agrees(2e-5, 1e-7)
    assert drift.agrees(2e-4, 1e-4)  # TF32: reordering alone does as much
    assert drift.verdict(["ddp"], ["model"], 20).startswith("ddp left the single-card loss")
    assert drift.verdict([], [], 20).startswith("no second strategy")


def test_launch_names_the_batch_where_overhead_ends() -> None:
    rows = [[1, 4.0, 1.0, 4.0], [2, 4.0, 2.0, 2.0], [4, 4.1, 4.0, 1.02]]
    assert launch.verdict(rows) == "launching sets the pace up to 2 sequences (a CUDA graph is 4.0 times as fast at 1); from 4 on the card is busy by itself"
    assert launch.verdict(rows[:2]).startswith("launching still sets the pace at 2 sequences")
    assert launch.verdict(rows[2:]).startswith("launching sets no batch size's pace")


@pytest.mark.parametrize(("agreed", "same", "reacted", "says"), [
    (True, True, True, "halves the scale"), (False, True, True, "ranks disagree"), (True, False, True, "weights differ"), (True, True, False, "not at work"),
])
def test_amp(agreed: bool, same: bool, reacted: bool, says: str) -> None:
    assert says in amp.verdict(agreed, same, reacted, 6, 2)


def test_preallocate_does_not_claim_what_it_did_not_save() -> None:
    row = ["", 0, 0.01, 0.01, 1, 1, 0]
    assert "saved no cudaMalloc" in preallocate.verdict([row, row])
    assert "from 160 to 11" in preallocate.verdict([["", 160, 0.06, 0.05, 1, 1, 0], ["", 11, 0.06, 0.05, 1, 1, 0]])


def test_scale_says_what_it_cannot_conclude() -> None:
    rows = [[1, 0.01, 100.0, 1.0], [2, 0.02, 100.0, 0.5]]
    assert scale.verdict(rows, ["shared"]).endswith("cannot be concluded here")
    assert scale.verdict(rows, []) == "2 ranks give 1.00 times one rank's throughput, 50% of what in proportion would be"


def test_aggregate_reports_a_wrong_sum() -> None:
    assert aggregate.verdict([], ["our kernel", "our kernel"]) == "our kernel gave a sum that is not the sum"
