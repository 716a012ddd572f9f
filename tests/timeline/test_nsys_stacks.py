"""Python frames in an nsys report: the line that waits, with its measured time. Recorded on an H200 by nsys 2025.3.1:

    nsys profile -t cuda,nvtx -s process-tree -b none --python-backtrace=cuda --cudabacktrace=all:0 python train.py

Twelve steps: line 19 copies from pageable memory, line 11 calls `.item()`, line 15 `torch.cuda.synchronize()`.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gpudoctor.rulebook.detect import detect_in_tables
from gpudoctor.rulebook.load import load_rules
from gpudoctor.timeline.ingest import Ingested, IngestOptions, ingest

REPORT = Path(__file__).parents[1] / "data" / "captures" / "nsys_3.20.3_python_backtrace.sqlite.gz"
SCRIPT = "/home/user/train.py"


def read(folder: Path, *statements: str) -> Ingested:
    path = folder / "report.sqlite"
    path.write_bytes(gzip.decompress(REPORT.read_bytes()))
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()
    return ingest([path], IngestOptions(cache=False, debug=True))


def test_each_wait_has_its_line(tmp_path: Path) -> None:
    waits = read(tmp_path).store.query("SELECT kind, path, line, func, sum(count) AS n FROM host_wait WHERE step IS NOT NULL AND count > 0 GROUP BY ALL ORDER BY line")
    assert [(w["kind"], w["path"], w["line"], w["func"], w["n"]) for w in waits if w["line"] != 19] == [
        ("stream_sync", SCRIPT, 11, "log", 12), ("device_sync", SCRIPT, 15, "wait", 12),
    ]


def test_findings_carry_line_and_time(tmp_path: Path) -> None:
    found = detect_in_tables(load_rules(cases=False), read(tmp_path).store, ("trace",)).evidence
    placed = {(rule.id, e.location.path, e.location.line): (e.count, e.cost_ns) for rule, e in found if e.location}
    assert set(placed) == {("GD107", SCRIPT, 11), ("GD107", SCRIPT, 15), ("GD112", SCRIPT, 19)}
    assert all(count == 12 and cost and cost > 0 for count, cost in placed.values())


def test_calls_recorded_twice_for_their_backtrace_count_once(tmp_path: Path) -> None:
    """Also where the export holds no frames."""
    result = read(tmp_path, "UPDATE NVTX_EVENTS SET jsonText = NULL")
    assert "pystack" not in result.store.captured
    assert result.store.query("SELECT kind, count(*) AS n FROM sync GROUP BY kind") == [{"kind": "stream", "n": 28}]
    assert result.store.query("SELECT kind, sum(count) AS n FROM host_wait WHERE kind = 'device_sync' GROUP BY kind") == [{"kind": "device_sync", "n": 12}]
    assert result.store.query("SELECT count(*) - count(DISTINCT corr) AS twice FROM api") == [{"twice": 0}]


def test_the_line_is_exact_where_nsys_told_it(tmp_path: Path) -> None:
    found = detect_in_tables(load_rules(cases=False).choose(["GD107"]), read(tmp_path).store, ("trace",)).evidence
    assert {(e.location.line, e.location.end_line) for _, e in found if e.location} == {(11, 11), (15, 15)}


@pytest.mark.parametrize("payload", ["{", '{"Python Backtrace on CUDA": 3}', '{"Python Backtrace on CUDA": {"Frames": [{"Line": "x"}]}}',
                                     '{"Python Backtrace on CUDA": {"Frames": [{"Function": 1e30, "File": -5, "Line": 3}]}}', "[" * 5000])
def test_other_payloads_are_passed_over(tmp_path: Path, payload: str) -> None:
    result = read(tmp_path, f"UPDATE NVTX_EVENTS SET jsonText = '{payload}' WHERE eventType = 34 AND rowid % 2 = 0")
    assert not result.problems
    assert 0 < result.store.count("pystack") < read(tmp_path).store.count("pystack")


@pytest.mark.parametrize("name", ["'/dev/zero'", "'/home/us' || char(0) || 'er/train.py'", "'/proc/self/mem'"])
def test_a_stranger_s_file_name_opens_nothing(tmp_path: Path, name: str) -> None:
    read(tmp_path, f"UPDATE StringIds SET value = {name} WHERE value = '{SCRIPT}'").store.close()
    ended = subprocess.run([sys.executable, "-m", "gpudoctor", "analyze", str(tmp_path / "report.sqlite"), "--no-cache", "--format", "json"], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert {f["rule"] for f in json.loads(ended.stdout)["findings"] if f["location"]} == {"GD107", "GD112"}
