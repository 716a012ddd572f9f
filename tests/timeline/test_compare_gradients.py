"""One card against two: no drift where only rounding differs, the layer's name where something is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable

from gpudoctor.report.comparison import compare
from gpudoctor.timeline.compare_gradients import compare_gradients, gradient_changes
from gpudoctor.timeline.derive import derive
from gpudoctor.timeline.store import Store

LAYERS = ("embed", "attention", "head")


def run(factor: Callable[[str, int], float], samples: int = 16, shift: int = 0, seed: int = 0) -> Store:
    """A run of 12 steps whose gradient norms are the model's own times `factor(layer, step)`."""
    rng = random.Random(seed)
    store = Store()
    store.add_rows("param", [{"rank": 0, "param_id": i, "name": n, "dtype": "float32"} for i, n in enumerate(LAYERS)])
    base = {(n, s): rng.uniform(0.5, 2.0) for n in LAYERS for s in range(12)}
    store.add_rows("grad_stat", [
        {"rank": 0, "step": s, "param_id": i, "stage": "reduced", "norm": base[n, s] * factor(n, s)} for i, n in enumerate(LAYERS) for s in range(12)
    ])
    store.add_rows("grad_hist", [
        {"rank": 0, "step": s, "param_id": i, "stage": "reduced", "bin": b + shift, "count": 1000 - 100 * abs(b + 5) + rng.randrange(20)}
        for i in range(3) for s in range(12) for b in range(-12, 2)
    ])
    store.add_rows("step", [{"rank": 0, "step": s, "samples": samples, "start": s * 100, "end": s * 100 + 90} for s in range(12)])
    derive(store)
    return store


def test_rounding_is_no_drift() -> None:
    noisy = run(lambda n, s: 1 + 1e-6 * (2 ** s))
    assert [d for d in compare_gradients(run(lambda n, s: 1.0), noisy) if d.drifted] == []
    row, = gradient_changes(run(lambda n, s: 1.0), noisy)
    assert row.verdict == "same"


def test_a_factor_of_two_is_told_for_every_layer() -> None:
    found = compare_gradients(run(lambda n, s: 1.0), run(lambda n, s: 2.0, shift=1))
    assert {d.name for d in found if d.drifted} == set(LAYERS)
    assert all(abs(d.ratio - 2) < 1e-9 for d in found)
    assert all(d.js is not None and d.js > 0.05 for d in found)


def test_one_layer_out_of_ddp_is_named() -> None:
    a = run(lambda n, s: 1.0)
    b = run(lambda n, s: 1.3 if n == "head" else 1 + 1e-3 * s)
    assert [d.name for d in compare_gradients(a, b) if d.drifted] == ["head"]
    sections = compare(a, b)
    assert [c.verdict for c in sections["gradients"]] == ["worse"]
    assert "head" in sections["gradients"][0].what


def test_other_seeds_are_judged_by_distributions_alone() -> None:
    assert [d for d in compare_gradients(run(lambda n, s: 1.0), run(lambda n, s: 1.0, seed=9)) if d.drifted] == []
    moved = compare_gradients(run(lambda n, s: 1.0), run(lambda n, s: 1.0, seed=9, shift=4))
    assert {d.name for d in moved if d.drifted} == set(LAYERS)


def test_another_global_batch_is_not_compared() -> None:
    assert compare_gradients(run(lambda n, s: 1.0), run(lambda n, s: 2.0, samples=32)) == []
