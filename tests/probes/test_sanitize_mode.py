"""The dispatch mode, on a CPU: its tensors stand for device memory, a variable for the current stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from gpudoctor.probes.sanitize.detector import Detector  # noqa: E402
from gpudoctor.probes.sanitize.mode import SanitizeMode  # noqa: E402
from gpudoctor.probes.sanitize.operators import describe  # noqa: E402
from gpudoctor.probes.sanitize.races import users_frame  # noqa: E402
from tests.probes.ranks import run_ranks  # noqa: E402


class Bench:
    """A mode over CPU tensors; `stream` is the current stream, `waits(b, a)` orders b after a.

    Tensors of int16 stand for pinned memory of the host, all others for memory of a card.
    """

    def __init__(self) -> None:
        self.stream = 1
        self.detector = Detector()
        self.fresh: list[int] = []
        self.mode = SanitizeMode(self.detector, lambda device: self.stream, self.fresh, lambda: False,
            on_device=lambda tensor: tensor.dtype is not torch.int16, is_pinned=lambda tensor: True)

    def waits(self, later: int, earlier: int) -> None:
        self.detector.clocks.record(99, earlier)
        self.detector.clocks.wait(99, later, self.detector.order)

    @property
    def kinds(self) -> list[str]:
        return [race.kind for race in self.detector.races]


@pytest.fixture
def bench():
    bench = Bench()
    with bench.mode:
        yield bench


def test_a_tensor_made_on_one_stream_and_read_on_another(bench: Bench) -> None:
    bench.stream = 2
    batch = torch.ones(64) * 2
    bench.stream = 1
    batch.sum()
    assert bench.kinds == ["stream-missing-wait"]
    race = next(iter(bench.detector.races))
    first, second = users_frame(race.first.site), users_frame(race.second.site)
    assert first is not None
    assert second is not None
    assert (first.path, second.path) == (__file__, __file__)
    assert second.line == first.line + 2


def test_the_same_with_a_wait(bench: Bench) -> None:
    bench.stream = 2
    batch = torch.ones(64) * 2
    bench.waits(1, 2)
    bench.stream = 1
    batch.sum()
    assert bench.kinds == []


def test_views_that_overlap_and_views_that_do_not(bench: Bench) -> None:
    base = torch.zeros(64)
    bench.waits(2, 1)
    bench.stream = 2
    base[:32].add_(1)
    bench.stream = 1
    base[32:].mul(2)
    assert bench.kinds == []
    base[31:].mul(2)
    assert bench.kinds == ["stream-missing-wait"]


def test_columns_side_by_side_do_not_overlap(bench: Bench) -> None:
    base = torch.zeros(16, 16)
    bench.waits(2, 1)
    bench.stream = 2
    base[:, :8].add_(1)
    bench.stream = 1
    base[:, 8:].mul(2)
    assert bench.kinds == []
    base[:, 7:9].mul(2)
    assert bench.kinds == ["stream-missing-wait"]


def test_two_readers_need_no_order(bench: Bench) -> None:
    base = torch.zeros(64)
    bench.waits(2, 1)
    base.sum()
    bench.stream = 2
    base.sum()
    assert bench.kinds == []


def test_views_and_empty_tensors_touch_nothing(bench: Bench) -> None:
    bench.stream = 2
    base = torch.empty(64)
    bench.stream = 1
    base.view(8, 8).t().reshape(8, 8)[1:].detach()
    torch.empty_like(base)
    assert bench.detector.clocks.position.get(1, 0) <= 1
    assert bench.kinds == []


def test_backward_names_the_line_that_called_it(bench: Bench) -> None:
    weight = torch.ones(8, 8, requires_grad=True)
    loss = (weight * weight).sum()
    bench.stream = 2
    loss.backward()
    race = next(iter(bench.detector.races))
    assert race.second.in_backward
    assert "Backward" in str(race.second.site[0])


def test_a_staging_buffer_is_refilled_in_flight(bench: Bench) -> None:
    staging, batch = torch.zeros(64, dtype=torch.int16), torch.zeros(64)
    batch.copy_(staging, non_blocking=True)
    staging.sum()
    assert bench.kinds == []
    staging.fill_(1)
    assert bench.kinds == ["pinned-buffer-reused"]


def test_the_same_after_the_host_has_waited(bench: Bench) -> None:
    staging, batch = torch.zeros(64, dtype=torch.int16), torch.zeros(64)
    batch.copy_(staging, non_blocking=True)
    bench.detector.clocks.host_waits_for_stream(bench.stream)
    staging.fill_(1)
    assert bench.kinds == []


def test_a_buffer_that_was_freed_is_the_allocators_affair(bench: Bench) -> None:
    staging, batch = torch.zeros(64, dtype=torch.int16), torch.zeros(64)
    address = staging.data_ptr()
    batch.copy_(staging, non_blocking=True)
    assert bench.detector.host_is_shared
    del staging
    again = [t for t in (torch.zeros(64, dtype=torch.int16) for _ in range(50)) if t.data_ptr() == address]
    for tensor in again:
        tensor.fill_(1)
    bench.mode._drop_dead_buffers()
    assert not bench.detector.host_is_shared
    assert bench.kinds == []


def test_the_host_reads_a_result_too_early(bench: Bench) -> None:
    host, result = torch.zeros(64, dtype=torch.int16), torch.ones(64)
    host.copy_(result, non_blocking=True)
    host[3:5].sum()
    assert bench.kinds == ["d2h-nonblocking-no-sync"]


def test_a_view_for_numpy_counts_only_if_no_wait_follows(bench: Bench) -> None:
    host, result = torch.zeros(64, dtype=torch.int16), torch.ones(64)
    host.copy_(result, non_blocking=True)
    bench.mode.host_reads(host, "numpy", now=False)
    bench.detector.clocks.host_waits_for_stream(bench.stream)
    bench.mode.waited()
    result.mul(2)
    assert bench.kinds == []
    host.copy_(result, non_blocking=True)
    bench.mode.host_reads(host, "numpy", now=False)
    result.mul(2)
    assert bench.kinds == ["d2h-nonblocking-no-sync"]


def test_lists_of_tensors_are_seen(bench: Bench) -> None:
    values = [torch.zeros(8), torch.zeros(8)]
    bench.waits(2, 1)
    bench.stream = 2
    torch._foreach_add_(values, 1.0)
    bench.stream = 1
    values[1].sum()
    assert bench.kinds == ["stream-missing-wait"]


def test_a_subclass_that_wraps_tensors_is_seen_inside(bench: Bench) -> None:
    from torch.testing._internal.two_tensor import TwoTensor

    pair = TwoTensor(torch.zeros(8), torch.zeros(8))
    bench.stream = 2
    pair.add_(1)
    assert bench.kinds
    assert bench.detector.races.found


def test_a_transformer_trains_and_nothing_is_reported(bench: Bench) -> None:
    block = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=True)
    optimizer = torch.optim.AdamW(block.parameters(), foreach=True)
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = block(torch.randn(2, 8, 16)).float().square().mean()
        loss.backward()
        optimizer.step()
    assert bench.kinds == []
    assert bench.mode.failure == ""
    assert bench.detector.order > 100


def test_schemas_are_read_right() -> None:
    add = describe(torch.ops.aten.add_.Tensor)
    assert add.written[:2] == (True, False)
    assert not add.fresh
    assert describe(torch.ops.aten.mul.Tensor).fresh
    assert describe(torch.ops.aten.view.default).skip
    assert describe(torch.ops.aten.copy_.default).copies
    assert not any(describe(torch.ops.aten.zeros_like.default).read)
    reduce = describe(torch.ops.c10d.allreduce_.default)
    assert reduce.collective
    assert reduce.written[0]
    assert reduce.read[0]
    gather = describe(torch.ops.c10d._allgather_base_.default)
    assert (gather.written[:2], gather.read[:2]) == ((True, False), (False, True))


def test_ddp_on_two_ranks_is_watched_and_quiet(tmp_path: Path) -> None:
    script = """
        import json
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from tests.probes.test_sanitize_mode import Bench
        dist.init_process_group("gloo")
        bench, seen = Bench(), set()
        touch = bench.detector.touch
        bench.detector.touch = lambda *a: (seen.add(a[2]), touch(*a))
        with bench.mode:
            net = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)))
            opt = torch.optim.AdamW(net.parameters())
            for step in range(3):
                net(torch.randn(4, 8)).square().mean().backward()
                opt.step()
                opt.zero_grad()
        json.dump([bench.kinds, bench.mode.failure, sorted(seen)], open(f"seen{dist.get_rank()}.json", "w"))
        dist.destroy_process_group()
    """
    run_ranks(tmp_path, script, ranks=2)
    for rank in range(2):
        kinds, failure, seen = json.loads((tmp_path / f"seen{rank}.json").read_text())
        assert (kinds, failure) == ([], "")
        assert {"allreduce_", "broadcast_"} <= set(seen)
