"""Two captures side by side."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gpudoctor.errors import InconclusiveError
from gpudoctor.timeline.compare import Change, band, compare_time
from tests.timeline.planted import FOLDER, read
from tests.timeline.program import Program


def changes(a, b):
    return {c.what: c for c in compare_time(read(a).store, read(b).store)}


def test_synchronising_is_worse_beyond_noise():
    seen = changes("nsys/clean_overlap", "nsys/oversync_stream")
    assert (seen["synchronising calls"].before, seen["synchronising calls"].after) == (0, 12)
    assert {seen[w].verdict for w in ("step time", "GPU idle", "exposed communication", "host waits for the GPU")} == {"worse"}
    assert seen["GPU compute"].verdict == "same"
    assert changes("nsys/oversync_stream", "nsys/clean_overlap")["step time"].verdict == "better"


def test_a_capture_is_like_itself():
    assert {c.verdict for c in changes("nsys/clean_overlap", "nsys/clean_overlap").values()} == {"same"}


def test_the_same_program_under_another_nsys_computes_the_same():
    assert changes("nsys/clean_overlap", "nsys2025/clean_overlap")["GPU compute"].verdict == "same"


def test_different_work_is_not_compared():
    with pytest.raises(InconclusiveError, match="different work"):
        compare_time(read("nsys/clean_overlap").store, read("nsys/launch_bound_tiny_kernels").store)


def test_too_few_steps_are_not_compared():
    program = Program({13: "nonblocking"})
    for _ in range(2):
        program.step()
        program.launch(13, "train")
    with pytest.raises(InconclusiveError, match="steps after warm-up"):
        compare_time(read("nsys/clean_overlap").store, program.store())


def test_noise_that_reaches_over_zero_is_no_change():
    assert Change("x", "ns", 100, 110, -5, 25).verdict == "same"
    assert Change("x", "ns", 100, 110, 5, 15).verdict == "worse"
    assert Change("x", "ns", 100, 101, 1, 1).verdict == "same"
    assert Change("x", "n", 0, 3, 3, 3).verdict == "worse"


def test_the_band_holds_the_difference():
    low, high = band([100, 101, 99, 100, 102], [120, 121, 119, 122, 120])
    assert low <= 20 <= high
    assert band([100, 101, 99], [120, 121, 119]) == band([100, 101, 99], [120, 121, 119])


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "gpudoctor", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)


def test_the_command_tells_what_is_new():
    a, b = (FOLDER / "nsys" / f"{n}.sqlite.gz" for n in ("clean_overlap", "wrong_order"))
    done = run("compare", "--no-cache", "--format", "json", a, b)
    report = json.loads(done.stdout)
    assert done.returncode == 1, done.stderr
    assert [f["name"] for f in report["findings"] if f["severity"] == "error"] == ["stream-wrong-order"]
    assert {r["what"] for r in report["summary"]["comparison"]["per step"]} >= {"step time", "GPU idle", "exposed communication"}
    assert run("compare", "--no-cache", b, b).returncode == 0


def test_the_command_refuses_what_it_cannot_compare():
    a, b = (FOLDER / "nsys" / f"{n}.sqlite.gz" for n in ("clean_overlap", "launch_bound_tiny_kernels"))
    done = run("compare", "--no-cache", a, b)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
