"""The comparison at 80 columns: words may fold, numbers may not."""

from __future__ import annotations

import io

import pytest

from gpudoctor.report.comparison import render
from gpudoctor.timeline.compare import Change


def test_long_names_fold_and_no_number_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = Change("drift: gradient of layers.2.attention.out_proj.bias, norm ×1.73, distributions 0.40 apart (JS)", "n", 1.0, 1.73, None, None)
    stream = io.StringIO()
    render({"per step": [Change("step time", "ns", 51.5e6, 10.8e6, -52.3e6, -35.2e6)], "gradients": [long]}, ("slow", "fast"), stream)
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text.replace(" … ", "")
    for part in ("51.5 ms", "-52.3 ms … -35.2 ms", "better", "1.73", "+73.0 %", "worse", "(JS)"):
        assert part in text
