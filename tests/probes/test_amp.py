"""Loss scaling as the probes see it, on CPU ranks: GradScaler works there too."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.probes.ranks import Record, facts, rows, run_ranks

KINDS = ("clip-before-unscale", "scaler-update-missing", "unscale-inside-accumulation")

SCRIPT = """
import contextlib
import torch
from torch import nn

def training(steps=3, scale=1024.0, dtype=torch.bfloat16, micro=1, during=None, after=None, update=lambda step: True, enabled=True):
    torch.manual_seed(0)
    net = nn.Linear(8, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=enabled)
    for step in range(steps):
        opt.zero_grad()
        for n in range(micro):
            with torch.autocast("cpu", dtype=dtype):
                loss = net(torch.randn(4, 8)).float().square().mean()
            scaler.scale(loss / micro).backward()
            if during:
                during(net, opt, scaler, n)
        if after:
            after(net, opt, scaler, step)
        if update(step):
            scaler.step(opt)
            scaler.update()

def norm(net, opt, scaler, step):
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)        # norm

def value(net, opt, scaler, step):
    nn.utils.clip_grad_value_(net.parameters(), 1.0)       # value

def norm_of_scale_one(net, opt, scaler, step):
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)        # quiet

def first_unscaled(net, opt, scaler, step):
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)        # quiet
    nn.utils.clip_grad_value_(net.parameters(), 1.0)       # quiet

def somebody_elses(net, opt, scaler, step):
    nn.utils.clip_grad_norm_([nn.Parameter(torch.ones(3))], 1.0)  # quiet

def unscaled_in_each(net, opt, scaler, n):
    scaler.unscale_(opt)                                   # in-each

def unscaled_in_first(net, opt, scaler, n):
    if n == 0:
        scaler.unscale_(opt)

def unscaled_in_last(net, opt, scaler, n):
    if n == 1:
        scaler.unscale_(opt)                               # quiet

def unscaled_after(net, opt, scaler, step):
    scaler.unscale_(opt)                                   # left-out

def infinite(net, opt, scaler, step):
    if step == 2:
        net.weight.grad.fill_(float("inf"))

training(6, after=infinite)
training(6, after=infinite, dtype=torch.float16)
training(4, scale=1e38)
training(after=norm)
training(after=value)
training(2, after=norm_of_scale_one, scale=1.0)
training(after=norm_of_scale_one, enabled=False)
training(after=first_unscaled)
training(after=somebody_elses)
training(micro=2, during=unscaled_in_last)
with contextlib.suppress(RuntimeError):
    training(micro=2, during=unscaled_in_each)
training(micro=2, during=unscaled_in_first)
with contextlib.suppress(RuntimeError):
    training(6, after=unscaled_after, update=lambda step: step != 3)

a, b = nn.Linear(8, 2), nn.Linear(8, 2)
opts = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (a, b)]
shared = torch.amp.GradScaler("cpu", init_scale=64.0)
for step in range(3):
    for model, opt in zip((a, b), opts):
        opt.zero_grad()
        shared.scale(model(torch.randn(4, 8)).square().mean()).backward()
        shared.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # quiet
        shared.step(opt)
    shared.update()
"""


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    return run_ranks(tmp_path_factory.mktemp("amp"), SCRIPT)


def line(mark: str) -> set[int]:
    return {n for n, text in enumerate(textwrap.dedent(SCRIPT).splitlines(), 1) if text.endswith(f"# {mark}")}


def lines(records: list[Record], kind: str) -> set[int]:
    return {row["line"] for row in facts(records, kind)}


def test_scale_growth_and_skips_are_recorded(records: list[Record]) -> None:
    for part in (rows(records, "amp")[:6], rows(records, "amp")[6:12]):
        assert [r["skipped"] for r in part] == [False, False, True, False, False, False]
        assert [r["scale"] for r in part] == [1024.0] * 3 + [512.0] * 3
        assert [r["growth_tracker"] for r in part] == [1, 2, 0, 1, 2, 3]


def test_steps_are_numbered(records: list[Record]) -> None:
    steps = [r["step"] for r in rows(records, "amp")]
    assert steps[:6] == list(range(6))
    assert all(a <= b for a, b in itertools.pairwise(steps))


def test_clipping_while_scaled_is_told_with_its_line(records: list[Record]) -> None:
    assert lines(records, "clip-before-unscale") == line("norm") | line("value")
    found = facts(records, "clip-before-unscale")
    assert {row["value"] for row in found} == {1024.0}
    assert sum(row["count"] for row in found) == 6


def test_unscaling_inside_an_accumulation(records: list[Record]) -> None:
    found = lines(records, "unscale-inside-accumulation")
    assert line("in-each") <= found
    assert len(found) == 2
    assert not found & line("quiet")


def test_update_left_out(records: list[Record]) -> None:
    assert lines(records, "scaler-update-missing") == line("left-out")


def test_correct_code_gives_no_fact(records: list[Record]) -> None:
    assert not line("quiet") & set().union(*(lines(records, kind) for kind in KINDS))
    assert not facts(records, "probe-failed")


def test_two_ranks_that_do_not_share_their_infinities(tmp_path: Path) -> None:
    script = """
        import torch
        import torch.distributed as dist
        dist.init_process_group("gloo")
        net = torch.nn.Linear(8, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for step in range(5):
            opt.zero_grad()
            scaler.scale(net(torch.randn(4, 8)).square().mean()).backward()
            if step == 2 and dist.get_rank() == 1:
                net.weight.grad.fill_(float("inf"))
            scaler.step(opt)
            scaler.update()
        dist.destroy_process_group()
    """
    amp = rows(run_ranks(tmp_path, script, ranks=2), "amp")
    assert {(r["rank"], r["step"]) for r in amp if r["skipped"]} == {(1, 2)}
    assert {r["scale"] for r in amp if r["rank"] == 0} == {1024.0}
    assert [r["scale"] for r in amp if r["rank"] == 1] == [1024.0] * 3 + [512.0] * 2
