"""Finding steps where the source wrote none."""

from __future__ import annotations

import random

import pytest

from gpudoctor.timeline.steps import from_marks, is_step_name
from tests.timeline.program import Program


@pytest.mark.parametrize("text", ["step", "train_step", "training step 12", "Iteration: 3", "iter 3/100", "step_7", "Warm-up Step 2", "batch 5", "epoch 1/step 3"])
def test_names_of_steps(text):
    assert is_step_name(text)


@pytest.mark.parametrize("text", ["optimizer step", "Optimizer.step#SGD.step", "forward", "data_step", "load batch", "lr_scheduler.step", "eval step", "stepping", "next batch", "zero_grad step", "scaler.step"])
def test_names_of_other_ranges(text):
    assert not is_step_name(text)


def test_profiler_marks_give_the_numbers():
    steps = from_marks(0, [("ProfilerStep#4", 1, 100, 200), ("ProfilerStep#3", 1, 0, 100), ("step", 1, 0, 50)])
    assert [(s.number, s.start, s.end, s.source) for s in steps] == [(3, 0, 100, "profiler"), (4, 100, 200, "profiler")]


def test_the_widest_repeating_range_wins():
    marks = [m for i in range(4) for m in (("iteration", 1, i * 100, i * 100 + 100), ("step", 1, i * 100 + 20, i * 100 + 60))]
    assert [s.end - s.start for s in from_marks(0, marks)] == [100] * 4


def test_ranges_inside_themselves_are_no_steps():
    assert from_marks(0, [("step", 1, 0, 1000), ("step", 1, 10, 20), ("step", 1, 30, 40)]) == []


def test_too_few_are_no_steps():
    assert from_marks(0, [("step", 1, 0, 100), ("step", 1, 100, 200)]) == []


def test_slow_first_steps_and_named_ones_are_warm_up():
    slow = from_marks(0, [("step", 1, 0, 1000)] + [("step", 1, 1000 + i * 100, 1100 + i * 100) for i in range(5)])
    assert [s.warmup for s in slow] == [True] + [False] * 5
    named = from_marks(0, [(f"warm-up step {i}", 1, i * 100, i * 100 + 100) for i in range(2)] + [(f"step {i}", 1, i * 100, i * 100 + 100) for i in range(2, 6)])
    assert [s.warmup for s in named] == [True, True, False, False, False, False]


def kernels(program, step, optimizer):
    for k in range(25):
        program.launch(13, f"layer{k}")
    program.launch(13, optimizer)
    program.time += 100


def test_optimizer_kernels_end_steps():
    program = Program({13: "nonblocking"})
    for i in range(6):
        kernels(program, i, "multi_tensor_apply_adam_functor")
    rows = program.store().query("SELECT step, source FROM step ORDER BY step")
    assert [(r["step"], r["source"]) for r in rows] == [(i, "inferred") for i in range(5)]


def test_a_kernel_that_returns_at_the_same_place_ends_steps():
    program = Program({13: "nonblocking"})
    for i in range(6):
        kernels(program, i, "elementwise")
    store = program.store()
    assert store.query("SELECT count(*) AS n, min(source) AS source FROM step") == [{"n": 5, "source": "inferred"}]
    assert {r["n"] for r in store.query("SELECT count(*) AS n FROM op WHERE step IS NOT NULL GROUP BY step")} == {26}


def test_no_pattern_no_steps():
    program, chance = Program({13: "nonblocking"}), random.Random(1)
    for _ in range(200):
        program.launch(13, f"kernel{chance.randrange(30)}")
    assert program.store().query("SELECT count(*) AS n FROM step")[0]["n"] == 0


def test_work_between_steps_has_no_step():
    program = Program({13: "nonblocking"})
    program.launch(13, "setup")
    for _ in range(3):
        program.step()
        program.launch(13, "train")
    program.rows["step"][-1]["end"] = program.time
    assert program.store().query("SELECT step FROM op ORDER BY launch")[0]["step"] is None
