"""The sanitizer as a probe: what it writes, and where it cannot work."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("torch")

from gpudoctor.probes.sanitize.probe import row
from gpudoctor.probes.sanitize.races import Access, Race, Races, Site, stack_text
from gpudoctor.tables import TABLES


def site() -> Site:
    frame = sys._getframe(1)
    return frame.f_code, frame.f_lasti


def access(where: Site, writes: bool = False, stream: int | None = 7) -> Access:
    return Access(stream, 1, "mul", writes, where, 1)


def test_the_place_is_where_the_mending_belongs() -> None:
    first = site()
    second = site()
    wait = row(Race("stream-missing-wait", access(first, True), access(second), 64, True, 3))
    reuse = row(Race("missing-record-stream", access(first), access(second, True), 64, True, 3))
    backward = row(Race("stream-missing-wait", access(first, True), access(("MulBackward0", *second)), 64, True, 3))
    line = test_the_place_is_where_the_mending_belongs.__code__.co_firstlineno + 1
    assert (wait["line"], reuse["line"], backward["line"]) == (line + 1, line, line)
    assert str(wait["other"]).endswith(f":{line}")
    assert str(wait["first_access"]) == "writes"
    assert str(wait["second_access"]) == "reads"
    assert set(wait) <= {c.name for c in TABLES["race"].columns}


def test_stacks_name_lines_and_the_node_of_backward() -> None:
    text = stack_text(("MulBackward0", *site()))
    assert text.startswith("backward of MulBackward0\n")
    assert "stack_text((" in text
    assert "test_sanitize_probe.py" in text


def test_no_more_than_so_many_races_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.probes.sanitize.races.MAX_RACES", 2)
    races = Races()
    for n in range(5):
        races.add(Race("stream-missing-wait", access((f"n{n}",)), access(("m",)), 1, True, 0))
    assert (len(races), races.dropped) == (2, 3)
