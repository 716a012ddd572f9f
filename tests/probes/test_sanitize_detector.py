"""The detector's core with made-up launches, events and allocations."""

from __future__ import annotations

import pytest

from gpudoctor.probes.sanitize.detector import Detector, Span
from gpudoctor.probes.sanitize.ranges import extent, is_dense, meet
from gpudoctor.probes.sanitize.windows import FIRST, Windows

MAIN, SIDE, THIRD = 1, 2, 3


def span(start: int, size: int = 64) -> Span:
    return start, start + size, None


@pytest.fixture
def detector() -> Detector:
    return Detector()


def kinds(detector: Detector) -> list[str]:
    return [race.kind for race in detector.races]


def write(detector: Detector, stream: int, at: Span) -> None:
    detector.launch(stream, "write", (), (at,), ())


def read(detector: Detector, stream: int, at: Span) -> None:
    detector.launch(stream, "read", (at,), (), ())


def order(detector: Detector, earlier: int, later: int, event: int = 7) -> None:
    detector.clocks.record(event, earlier)
    detector.clocks.wait(event, later, detector.order)


def test_write_then_read_without_a_wait(detector: Detector) -> None:
    write(detector, SIDE, span(1000))
    read(detector, MAIN, span(1000))
    assert kinds(detector) == ["stream-missing-wait"]


def test_a_wait_through_a_third_stream_orders(detector: Detector) -> None:
    write(detector, SIDE, span(1000))
    order(detector, SIDE, THIRD)
    order(detector, THIRD, MAIN, event=8)
    read(detector, MAIN, span(1000))
    assert kinds(detector) == []


def test_an_event_recorded_too_early_is_a_wrong_order(detector: Detector) -> None:
    detector.clocks.record(7, SIDE)
    write(detector, SIDE, span(1000))
    detector.clocks.wait(7, MAIN, detector.order)
    read(detector, MAIN, span(1000))
    assert kinds(detector) == ["stream-wrong-order"]


def test_a_wait_before_the_producer_was_launched_is_a_missing_wait(detector: Detector) -> None:
    order(detector, SIDE, MAIN)
    write(detector, SIDE, span(1000))
    read(detector, MAIN, span(1000))
    assert kinds(detector) == ["stream-missing-wait"]


@pytest.mark.parametrize("how", ["stream", "event", "device"])
def test_the_host_can_order(detector: Detector, how: str) -> None:
    write(detector, SIDE, span(1000))
    if how == "stream":
        detector.clocks.host_waits_for_stream(SIDE)
    elif how == "event":
        detector.clocks.record(7, SIDE)
        detector.clocks.host_waits_for_event(7)
    else:
        detector.all_is_done()
    read(detector, MAIN, span(1000))
    assert kinds(detector) == []


def test_host_waits_do_not_reach_later_work(detector: Detector) -> None:
    write(detector, SIDE, span(1000))
    detector.clocks.host_waits_for_stream(SIDE)
    write(detector, SIDE, span(1000))
    read(detector, MAIN, span(1000))
    assert kinds(detector) == ["stream-missing-wait"]


def test_memory_handed_out_again_while_another_stream_reads_it(detector: Detector) -> None:
    detector.allocated([1000])
    write(detector, SIDE, span(1000))
    order(detector, SIDE, MAIN)
    read(detector, MAIN, span(1000))
    detector.allocated([1000])
    write(detector, SIDE, span(1000))
    assert kinds(detector) == ["missing-record-stream"]


def test_record_stream_makes_it_safe(detector: Detector) -> None:
    detector.allocated([1000])
    write(detector, SIDE, span(1000))
    order(detector, SIDE, MAIN)
    detector.record_stream(1000, 1064, MAIN)
    read(detector, MAIN, span(1000))
    detector.allocated([1000])
    write(detector, SIDE, span(1000))
    assert kinds(detector) == []


def test_reuse_after_a_wait_is_safe(detector: Detector) -> None:
    detector.allocated([1000])
    read(detector, MAIN, span(1000))
    order(detector, MAIN, SIDE)
    detector.allocated([1000])
    write(detector, SIDE, span(1000))
    assert kinds(detector) == []


def test_pinned_memory_refilled_in_flight(detector: Detector) -> None:
    write(detector, MAIN, span(1000))
    detector.copies_host(MAIN, span(5000), "copy_", False, ())
    first = detector.in_flight(span(5000), writes=True)
    assert detector.host_is_shared
    assert first is not None
    assert detector.in_flight(span(5000), writes=False) is None
    detector.host_raced(first, span(5000), "fill_", True, ())
    assert kinds(detector) == ["pinned-buffer-reused"]


def test_host_reads_before_the_copy_is_done(detector: Detector) -> None:
    read(detector, MAIN, span(1000))
    detector.copies_host(MAIN, span(5000), "copy_", True, ())
    first = detector.in_flight(span(5010, 4), writes=False)
    assert first is not None
    detector.host_raced(first, span(5010, 4), "sum", False, ())
    assert kinds(detector) == ["d2h-nonblocking-no-sync"]
    detector.clocks.host_waits_for_stream(MAIN)
    assert detector.in_flight(span(5010, 4), writes=False) is None
    assert not detector.host_is_shared


def test_the_same_race_again_is_counted(detector: Detector) -> None:
    for _ in range(5):
        write(detector, SIDE, span(1000))
        read(detector, MAIN, span(1000))
        detector.all_is_done()
    assert [race.count for race in detector.races] == [5]


def test_a_foreign_stream_leaves_a_doubt(detector: Detector) -> None:
    detector.unsure.add(SIDE)
    write(detector, SIDE, span(1000))
    read(detector, MAIN, span(1000))
    assert [race.sure for race in detector.races] == [False]


def test_a_collective_joins_with_the_position_it_was_given(detector: Detector) -> None:
    write(detector, MAIN, span(1000))
    order(detector, MAIN, THIRD)
    position = detector.clocks.launch(THIRD)
    detector.clocks.record(9, THIRD)
    detector.order += 1
    detector.touch(THIRD, position, "allreduce_", (), (span(1000),), ())
    detector.clocks.wait(9, MAIN, detector.order)
    read(detector, MAIN, span(1000))
    assert kinds(detector) == []


def test_ranges() -> None:
    assert extent(0, (4, 4), (8, 1), 4) == (3 * 8 + 3 + 1) * 4
    assert extent(10, (0, 4), (4, 1), 4) == 10
    assert is_dense((4, 8), (1, 4))
    assert not is_dense((4, 4), (8, 1))
    left, right = (0, (8, 4), (8, 1), 4), (16, (8, 4), (8, 1), 4)
    assert meet(left, right) is False
    assert meet(left, (12, (8, 4), (8, 1), 4)) is True
    assert meet((0, (100_000, 2), (8, 1), 4), right) is None


def test_windows_keep_to_the_limit() -> None:
    windows, spent, steps = Windows(1.5), 0.0, 2000
    for _ in range(steps):
        took = 400 if windows.on else 100
        spent += took
        windows.after(took)
    assert spent / steps / 100 < 1.5
    assert windows.ratio == pytest.approx(4.0)


def test_windows_stay_on_where_it_is_cheap() -> None:
    windows = Windows(1.5)
    on = [windows.after(120 if windows.on else 100) for _ in range(200)]
    assert all(on[: FIRST - 1])
    assert sum(on) > 190
