"""gpudoctor beside a peer on one input: `compare.py nsys|kineto|growth INPUT [--peer PROGRAM] [--rounds N]`."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from inputs import longer_report
from measure import Cost, measure

HERE = Path(__file__).parent


def ours(*arguments: str) -> Cost:
    return measure(sys.executable, "-m", "gpudoctor", "analyze", "--format", "json", *arguments)


def cold(path: Path) -> Cost:
    shutil.rmtree(path.parent / ".gpudoctor", ignore_errors=True)
    return ours(str(path))


def rounds(count: int, **contestants: Callable[[], Cost]) -> dict[str, Cost]:
    """Run all contestants in turn, `count` times; print each and the medians, and return those."""
    costs: dict[str, list[Cost]] = {name: [] for name in contestants}
    for _ in range(count):
        for name, run in contestants.items():
            cost = run()
            print(f"{name:10} {cost}", flush=True)
            costs[name].append(cost)
    out = {}
    for name, seen in costs.items():
        out[name] = Cost(median(c.wall for c in seen), median(c.cpu for c in seen), max(c.memory for c in seen), max(c.code for c in seen))
        print(f"{name:10} wall {out[name].wall:7.2f} s   cpu {out[name].cpu:7.2f} s   memory {out[name].memory:7.0f} MiB   exit {out[name].code}")
    return out


def ratio(words: str, one: Cost, other: Cost) -> None:
    print(f"{words}: wall {one.wall / other.wall:.1f}×, cpu {one.cpu / other.cpu:.1f}×, memory {one.memory / max(other.memory, 1):.2f}×")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["nsys", "kineto", "growth"])
    parser.add_argument("input", type=Path)
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    contestants: dict[str, Callable[[], Cost]] = {}
    if asked.kind == "nsys":
        contestants = {"cold": lambda: cold(asked.input), "second": lambda: ours(str(asked.input))}
        if asked.peer:
            _require_extension(asked.peer)
            contestants["peer"] = lambda: _nsys_ai(asked.peer, asked.input)
    elif asked.kind == "kineto":
        files = sorted(map(str, asked.input.glob("*.json.gz")))
        contestants = {"cold": lambda: ours("--no-cache", *files)}
        if asked.peer:
            contestants["peer"] = lambda: measure(asked.peer, str(HERE / "hta_peer.py"), str(asked.input))
    else:
        growth(asked.input, asked.rounds)
        return
    costs = rounds(asked.rounds, **contestants)
    if "peer" in costs:
        ratio("peer ÷ gpudoctor", costs["peer"], costs["cold"])


def _require_extension(program: str) -> None:
    """Without DuckDB's SQLite extension nsys-ai takes a path six times as slow, and a comparison says nothing."""
    python = Path(program).parent / "python"
    if subprocess.run([python, "-c", "import duckdb; duckdb.connect().execute('LOAD sqlite_scanner')"], capture_output=True, check=False).returncode:
        sys.exit("the peer's DuckDB lacks its SQLite extension: see tests/bench/README.md")


def _nsys_ai(program: str, report: Path) -> Cost:
    """A fresh copy each time: nsys-ai keeps a cache of its own beside the report."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copyfile(report, Path(folder) / "report.sqlite"))
        return measure(program, "diagnose", str(copy), cwd=Path(folder))


def growth(small: Path, count: int) -> None:
    """Ten times the events against the time they take."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = {}
        for times in (15, 150):
            sizes[times] = Path(folder) / str(times) / "r.sqlite"
            sizes[times].parent.mkdir()
            longer_report(small, times, sizes[times])
        costs = rounds(count, small=lambda: cold(sizes[15]), large=lambda: cold(sizes[150]))
        ratio("10 times the events", costs["large"], costs["small"])


if __name__ == "__main__":
    main()
