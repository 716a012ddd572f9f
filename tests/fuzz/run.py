"""Analyze mutants and write a line of JSON for each: `python run.py FIRST COUNT`.

Runs in a process of its own, so that whoever started it sees a hang or a crash as one.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutate import mutant

from gpudoctor.cli import main
from gpudoctor.rulebook import load

load.load_rule = cache(load.load_rule)


def analyze(path: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `gpudoctor analyze PATH`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(["analyze", str(path), "--format", "json"])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue(), err.getvalue()


def judge(code: int, out: str, err: str) -> str:
    """What is wrong with how a mutant was answered; empty if nothing is."""
    if code not in (0, 1, 2, 3):
        return f"exit code {code}"
    if "Traceback" in err:
        return "traceback"
    if code == 2 and len(err.strip().splitlines()) != 1:
        return f"{len(err.splitlines())} lines of error"
    if code != 2 or out:
        try:
            json.loads(out)
        except ValueError as error:
            return f"not JSON: {error}"
    return ""


def run(first: int, count: int) -> None:
    """Analyze the mutants `first` and following."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            path = mutant(seed, Path(folder))
            begin, cpu = time.perf_counter(), time.process_time()
            problem = ""
            try:
                code, out, err = analyze(path)
                problem = judge(code, out, err)
            except BaseException as error:
                code, err, problem = -1, "", f"{type(error).__name__}: {str(error)[:300]}"
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(json.dumps({"seed": seed, "code": code, "seconds": round(time.perf_counter() - begin, 2), "cpu": round(time.process_time() - cpu, 2), "peak_mb": peak, "problem": problem, "error": err.strip()[:300]}), flush=True)
            path.unlink()


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]))
