"""Each field case: the expected slug at the expected line, and nothing else at warning or above."""

from __future__ import annotations

import pytest

from gpudoctor.source import parse_sources
from tests.source.fieldcases import Case, cases, findings, loud


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_case(case: Case) -> None:
    found = findings(parse_sources({"train.py": case.text}))
    assert loud(found) <= {case.slug}
    if case.slug:
        assert {f.location.line for f in found if f.name == case.slug and f.location} == set(case.lines)
