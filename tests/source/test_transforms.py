"""Other names, aliases, helpers, classes and files do not change a verdict."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.source import parse_sources
from tests.source.fieldcases import Case, cases, findings, loud
from tests.source.rewrites import REWRITES, Rewrite, two_of

_MAIN = [c for c in cases() if "def main():" in c.text]


def _verdict(case: Case, rewrite: Rewrite) -> None:
    files = rewrite(case.text)
    found = findings(parse_sources(files))
    assert loud(found) <= {case.slug}, files
    if case.slug:
        assert case.slug in {f.name for f in found}, files


@pytest.mark.parametrize("rewrite", [pytest.param(r, marks=pytest.mark.slow) if "-" in r.__name__ else r for r in REWRITES], ids=lambda r: r.__name__)
@pytest.mark.parametrize("case", _MAIN, ids=lambda c: c.name)
def test_rewrite_keeps_the_verdict(case: Case, rewrite: Rewrite) -> None:
    _verdict(case, rewrite)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(_MAIN), st.lists(st.sampled_from(REWRITES[:2]), min_size=1, max_size=3), st.sampled_from(REWRITES[4:7]))
def test_several_rewrites_keep_the_verdict(case: Case, names: list[Rewrite], moves: Rewrite) -> None:
    rewrite = moves
    for name in names:
        rewrite = two_of(rewrite, name)
    _verdict(case, rewrite)
