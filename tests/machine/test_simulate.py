"""The step-time model against closed forms, and its verdicts for the topologies people have."""

import json
from pathlib import Path

import pytest

from gpudoctor.machine.examine import examine
from gpudoctor.machine.plan.gpus import parse_gpus
from gpudoctor.machine.seam import RecordedMachine
from gpudoctor.machine.simulate import (
    all_reduce_time,
    buckets_of,
    exposed_time,
    judge_all_reduce,
    predict_scaling,
)
from gpudoctor.machine.topology import STAGED, Node, Topology, topology_of

DATA = Path(__file__).parent / "data"


def ring(count: int, rate: float, latency: float = 0.0) -> Topology:
    nodes = tuple(Node("card", 16 << 30) for _ in range(count))
    return Topology(nodes, {(a, b): (rate, latency) for a in range(count) for b in range(count) if a != b})


def recorded(name: str) -> Topology:
    examined = examine(RecordedMachine.load(DATA / f"{name}.json"))
    return topology_of(examined.cards, examined.pairs)


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_ring_moves_twice_n_minus_one_over_n(n: int) -> None:
    assert all_reduce_time(10**9, ring(n, 10e9)) == pytest.approx(2 * (n - 1) / n * 0.1)
    assert all_reduce_time(1, ring(n, 10e9, 1e-5)) == pytest.approx(2 * (n - 1) * 1e-5, rel=1e-3)


def test_one_card_sends_nothing() -> None:
    assert all_reduce_time(10**9, ring(1, 10e9)) == 0


def test_the_slowest_hop_sets_the_pace() -> None:
    slow = ring(4, 10e9)
    slow.pairs[2, 3] = (1e9, 0.0)
    assert all_reduce_time(10**9, slow) == pytest.approx(10 * all_reduce_time(10**9, ring(4, 10e9)))


def test_overlap_hides_all_but_the_last_bucket() -> None:
    host = ring(2, 10e9)
    buckets = [100_000_000] * 10
    total, exposed = exposed_time(buckets, backward=1.0, topology=host)
    assert total == pytest.approx(0.1)
    assert exposed == pytest.approx(0.01)
    assert exposed_time(buckets, 1.0, host, overlap=False) == (total, total)
    assert exposed_time(buckets, 1e-6, host)[1] == pytest.approx(total, rel=1e-3)


def test_buckets_add_up() -> None:
    for count in (0, 1, 1 << 20, (1 << 20) + 1, 123_456_789):
        assert sum(buckets_of(count)) == count
    assert buckets_of(100 << 20)[:2] == [1 << 20, 25 << 20]


def test_scaling_by_the_formula() -> None:
    steps = predict_scaling(1.0, 10**9, ring(2, 1e9), counts=(1, 2, 4), overlap=False)
    assert [s.cards for s in steps] == [1, 2, 4]
    assert steps[0].speedup == 1
    two = steps[1]
    assert two.communication == pytest.approx(1.0)
    assert two.speedup == pytest.approx(2 * 1.0 / 2.0)
    assert two.efficiency == pytest.approx(0.5)


def test_no_communication_scales_linearly() -> None:
    assert [round(s.speedup, 6) for s in predict_scaling(1.0, 0, ring(8, 1e9))] == [1, 2, 4, 8]


def test_recorded_machines_rank_as_they_should() -> None:
    gradients = 500_000_000
    times = {name: all_reduce_time(gradients, recorded(name)) for name in ("two_geforce", "nvlink_pair", "x4_slot")}
    assert times["nvlink_pair"] < times["two_geforce"] < times["x4_slot"]
    assert times["x4_slot"] > 5 * times["two_geforce"]
    shared, own = recorded("four_behind_switches"), recorded("four_behind_switches")
    assert shared.uplinks[0] == pytest.approx(4 * 12.6e9)
    alone = Topology(tuple(Node(n.name, n.memory, n.peak, n.link) for n in own.nodes), {})
    staged = Topology(shared.nodes, {}, shared.uplinks)
    assert all_reduce_time(gradients, staged) > 1.5 * all_reduce_time(gradients, alone)


def test_without_p2p_a_hop_goes_through_host_memory() -> None:
    rate, _ = recorded("two_geforce").hop(0, 1, 2)
    assert rate == pytest.approx(STAGED * 55.0e9)


def test_more_cards_than_there_are_repeat_the_last() -> None:
    host = parse_gpus("2x16GB").first(8)
    assert len(host.nodes) == 8
    assert all_reduce_time(10**8, host) > 0


def test_measured_against_expected() -> None:
    host = ring(2, 10e9)
    expected = all_reduce_time(25 << 20, host)
    assert judge_all_reduce(25 << 20, expected * 1.2, host)[1] == "as expected"
    assert judge_all_reduce(25 << 20, expected * 4, host) == (pytest.approx(4), "slow")
    assert judge_all_reduce(25 << 20, expected / 4, host)[1] == "faster than the model"


def test_recordings_are_plain_json() -> None:
    for path in DATA.glob("*.json"):
        assert json.loads(path.read_text())["schema"] == "gpudoctor.machine/1"
