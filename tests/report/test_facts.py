"""Facts of a run: how well the ranks' gradients agree, from norms alone."""

from __future__ import annotations

import math

import pytest

from gpudoctor.report.facts import summarise
from gpudoctor.timeline.store import Store

LOCAL = {0: ((3.0, 0.0), (0.0, 2.0)), 1: ((0.0, 4.0), (0.0, 2.0))}
"""Two parameters of two elements on two ranks: the first at right angles, the second alike."""


def run(factor: float = 1.0, micro_batches: int = 1, other: float = 1.0) -> Store:
    """One step; `factor` stands for unscaling and clipping, `other` spoils the second parameter alone."""
    store = Store()
    mean = [tuple((a + b) / 2 for a, b in zip(LOCAL[0][p], LOCAL[1][p], strict=True)) for p in (0, 1)]
    store.add_rows("param", [{"rank": r, "param_id": p, "name": "ab"[p], "numel": 2, "model_id": 0} for r in (0, 1) for p in (0, 1)])
    for rank in (0, 1):
        for p in (0, 1):
            store.add_rows("grad_stat", [{"rank": rank, "step": 0, "param_id": p, "stage": "local", "norm": math.hypot(*LOCAL[rank][p])},
                                         {"rank": rank, "step": 0, "param_id": p, "stage": "reduced", "norm": math.hypot(*mean[p]) * factor * (other if p else 1)}])
        store.add_rows("step", [{"rank": rank, "step": 0, "start": 0, "end": 10, "micro_batches": micro_batches}])
        store.add_rows("bucket", [{"rank": rank, "step": 0, "bucket": 0, "micro_batch": 0, "path": "ddp", "model_id": 0, "reduced_norm2": sum(math.hypot(*m) ** 2 for m in mean)}])
    return store


def agreements(store: Store) -> list[float | None]:
    return [row["agreement"] for row in summarise(store)["gradients"]]


@pytest.mark.parametrize("factor", [1.0, 0.01, 1 / 65536])
def test_agreement_is_that_of_the_gradients_whatever_was_clipped_or_unscaled(factor: float) -> None:
    assert agreements(run(factor)) == pytest.approx([0.0, 1.0], abs=1e-9)


def test_each_model_has_a_factor_of_its_own() -> None:
    store = run(0.25)
    store.add_rows("param", [{"rank": r, "param_id": 2, "name": "c", "numel": 2, "model_id": 1} for r in (0, 1)])
    store.add_rows("grad_stat", [{"rank": r, "step": 0, "param_id": 2, "stage": s, "norm": 5.0} for r in (0, 1) for s in ("local", "reduced")])
    store.add_rows("bucket", [{"rank": r, "step": 0, "bucket": 0, "micro_batch": 0, "path": "ddp", "model_id": 1, "reduced_norm2": 25.0} for r in (0, 1)])
    assert agreements(store) == pytest.approx([0.0, 1.0, 1.0], abs=1e-9)


def test_a_step_that_reduced_another_pass_is_left_out() -> None:
    assert agreements(run(micro_batches=2)) == [None, None]


def test_what_gradients_cannot_have_is_left_out() -> None:
    assert agreements(run(other=4.0))[1] is None
