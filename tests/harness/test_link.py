"""The link's limit as the bandwidth experiment compares with it."""

from __future__ import annotations

import pytest

from gpudoctor.harness.link import Link, link_of


def test_limit_is_of_the_width_now_and_the_highest_generation() -> None:
    at_rest = Link(1, 8, 5, 16)
    assert at_rest.limit == pytest.approx(31.5e9, rel=0.01)
    assert str(at_rest) == "PCIe 5.0 x8 of x16"
    assert str(Link(4, 16, 4, 16)) == "PCIe 4.0 x16"


def test_a_card_that_is_not_there_has_no_link() -> None:
    assert link_of("ffff:ff:1f.0") is None
