"""`gpudoctor analyze` as a user meets it: exit codes, streams, one-line errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gpudoctor.cli import main
from gpudoctor.cli.progress import _Bar
from tests.shared import shared_dir

DATA = Path(__file__).parents[1] / "data" / "captures"
CLEAN, WRONG = DATA / "nsys_3.20.3_clean_overlap.sqlite.gz", DATA / "nsys_3.7.2_wrong_order.sqlite.gz"


def analyze(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        main(["analyze", *map(str, arguments)])
    return int(end.value.code or 0)


def test_a_clean_capture_exits_0_and_prints_only_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(CLEAN, "--format", "json", "--no-cache") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["subject"] == {"kind": "capture", "paths": [str(CLEAN)]}
    assert not [f for f in report["findings"] if f["severity"] in ("warning", "error")]


def test_a_fault_exits_1_unless_the_gate_is_higher(capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(WRONG, "--format", "json") == 1
    (finding,) = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["severity"] == "error"]
    assert (finding["name"], finding["count"]) == ("stream-wrong-order", 40)
    assert analyze(WRONG, "--ignore", "GD1") == 0


def test_several_of_which_one_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(WRONG, tmp_path / "absent.json", "--format", "json") == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["findings"]
    assert err == f"gpudoctor: {tmp_path / 'absent.json'}: no such file or folder\n"


@pytest.mark.parametrize("content", [b"", b"text", b"SQLite format 3\0 and no more", b'{"traceEvents": 1}', bytes(200)])
@pytest.mark.parametrize("name", ["x.sqlite", "x.nsys-rep", "x.json", "x.json.gz", "x.pickle"])
def test_what_cannot_be_read_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NSYS", "/nowhere")
    (tmp_path / name).write_bytes(content)
    assert analyze(tmp_path / name) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("gpudoctor: ")


def test_a_truncated_trace_gives_a_report_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.decompress((DATA / "kineto_item_each_step.json.gz").read_bytes())[:500_000])
    assert analyze(path, "--format", "json") == 2
    out, err = capsys.readouterr()
    assert "capture-truncated" in {f["name"] for f in json.loads(out)["findings"]}
    assert err.count("\n") == 1


def test_a_capture_without_kernels_is_inconclusive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "tid": 1, "ts": 5, "dur": 2, "args": {"correlation": 1}}]}))
    assert analyze(path, "--format", "json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "inconclusive"
    assert "capture-empty" in {a["name"] for a in report["abstained"]}
    assert analyze(path, "--require", "exposed-communication") == 3


def test_memory_limit_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze(CLEAN, "--memory-limit", "banana") == 2
    assert "--memory-limit banana" in capsys.readouterr().err
    assert analyze(CLEAN, "--memory-limit", "200MB") == 0


def test_every_published_capture(capsys: pytest.CaptureFixture[str]) -> None:
    public = shared_dir("captures") / "public"
    for path in (*(public / "nsys").glob("*.sqlite"), *(public / "kineto").glob("*.gz"), *(public / "memory").glob("*.pickle"), public / "flight_recorder" / "gpu_error_1st"):
        assert analyze(path, "--format", "json") in (0, 1, 3), path
        out, err = capsys.readouterr()
        assert json.loads(out)["schema"] == "gpudoctor.report/1"
        assert "Traceback" not in err


def test_progress_is_quiet_when_it_is_quick() -> None:
    bar = _Bar("reading")
    bar.update(1, 3)
    bar.end()
    bar.show()
    assert bar._shown is None
