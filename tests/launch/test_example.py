"""The main job on the example, with and without captures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpudoctor.nsight import find_nsys
from tests.launch.running import run

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "train_ddp.py")
pytestmark = pytest.mark.slow


def test_example_is_clean_and_quick(tmp_path: Path) -> None:
    started = time.monotonic()
    ran = run(tmp_path, EXAMPLE)
    assert time.monotonic() - started < 40
    assert ran.code == 0, ran.stderr
    assert ran.serious == set()
    assert ran.report["schema"] == "gpudoctor.report/1", "nothing but the report is on stdout"
    assert "epoch 3: loss" in ran.stderr
    for part in ("run.json", "findings.json", "tables/step.parquet", "logs/rank0.txt", "logs/rank1.txt"):
        assert (ran.out / part).is_file(), part
    info = json.loads((ran.out / "run.json").read_text("utf-8"))
    assert (info["state"], info["exit_code"], info["world_size"]) == ("done", 0, 2)


def test_kineto_window(tmp_path: Path) -> None:
    ran = run(tmp_path, EXAMPLE, options=("--no-lint", "--capture", "kineto", "--capture-steps", "3"))
    assert ran.code == 0, ran.stderr
    assert sorted(p.name for p in ran.out.glob("capture/kineto*")) == ["kineto.rank0.json.gz", "kineto.rank1.json.gz"]
    assert ran.serious == set()


@pytest.mark.nsys
@pytest.mark.skipif(find_nsys() is None, reason="needs Nsight Systems: `.ci/nsys.sh FOLDER` unpacks Debian's, then set NSYS=FOLDER/nsys")
def test_nsys_records_the_ranks_ranges(tmp_path: Path) -> None:
    ran = run(tmp_path, EXAMPLE, options=("--no-lint", "--capture", "nsys"), timeout=240)
    assert ran.code == 0, ran.stderr
    report = ran.out / "capture" / "run.nsys-rep"
    assert report.stat().st_size > 10_000
    assert ran.serious == set()
    done = subprocess.run([sys.executable, "-m", "gpudoctor", "analyze", "--format", "json", str(report)], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 3), done.stderr
    import duckdb

    rows = duckdb.sql(f"SELECT n.rank, t.text, count(*) FROM '{ran.out}/tables/nvtx.parquet' AS n JOIN '{ran.out}/tables/name.parquet' AS t USING (name_id) GROUP BY ALL").fetchall()
    ranges = {(rank, text): count for rank, text, count in rows}
    for rank in (0, 1):
        assert ranges[rank, "forward"] == ranges[rank, "backward"] == ranges[rank, "optimizer"] == 128
