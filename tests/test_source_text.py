"""Only what can be a source is opened, whatever a capture says where its code lies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpudoctor.source_text import MAX_BYTES, lines_of_source, raw_source


def test_a_source_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes("x = 'é'\r\ny = 1".encode() + b"\xff\n")
    assert lines_of_source(str(tmp_path / "a.py")) == ["x = 'é'", "y = 1\ufffd"]


@pytest.mark.parametrize("path", ["/dev/zero", "/proc/self/status", "/proc/kmsg", "a\0b.py", "no such file.py", ".", "x" * 5000])
def test_what_is_no_file_has_no_text(path: str) -> None:
    assert raw_source(path) == b""


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "train.py")
    assert lines_of_source(tmp_path / "train.py") == []


def test_a_file_longer_than_sources_are_is_left_closed(tmp_path: Path) -> None:
    file = tmp_path / "long.py"
    file.write_bytes(b"#" * MAX_BYTES)
    assert len(raw_source(file)) == MAX_BYTES
    os.truncate(file, MAX_BYTES + 1)
    assert raw_source(file) == b""
