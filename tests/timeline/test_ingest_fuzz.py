"""Damaged and hostile captures: one clear answer each, in bounded time and memory.

A seeded subset of 160 by default; all 2,000 mutants with GPUDOCTOR_FUZZ=all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).parents[1] / "fuzz" / "run.py"
ALL = 2000
MOST_CPU_S = 10
MOST_MB = 2048


def analyzed(first: int, count: int) -> list[dict[str, Any]]:
    """The answers to some mutants; a hang ends the process, and the answer that is missing names the mutant."""
    with subprocess.Popen([sys.executable, str(RUN), str(first), str(count)], stdout=subprocess.PIPE, text=True) as child:
        try:
            out, _ = child.communicate(timeout=30 + 10 * count)
        except subprocess.TimeoutExpired:
            child.kill()
            out, _ = child.communicate()
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == count, f"mutant {first + len(rows)} hung or ended the process (status {child.returncode})"
    return rows


def check(rows: list[dict[str, Any]]) -> None:
    bad = [r for r in rows if r["problem"] or r["cpu"] > MOST_CPU_S or r["peak_mb"] > MOST_MB]
    assert not bad, "\n".join(map(str, bad[:10]))
    codes = {r["code"] for r in rows}
    assert codes >= {0, 2}, f"mutants are all alike: {codes}"


@pytest.mark.parametrize("first", [0, 1000])
def test_some_mutants(first: int) -> None:
    check(analyzed(first, 50))


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("GPUDOCTOR_FUZZ") != "all", reason="needs GPUDOCTOR_FUZZ=all: about twenty minutes")
@pytest.mark.parametrize("first", range(0, ALL, 200))
def test_all_mutants(first: int) -> None:
    check(analyzed(first, 200))
