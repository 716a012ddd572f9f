"""The batch of runs on several real cards: planted faults against verdicts, scaling, harness, machine. Writes tables and captures to OUT.

    python tests/gpu/cards.py --ranks 2 --out OUT      # issue: two cards
    python tests/gpu/cards.py --ranks 4 --out OUT      # issue: four cards

With fewer cards than ranks the ranks share cards over gloo; what that cannot show is said in the table. Exit 1 if a verdict misses the truth.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
# fault → what must be among the findings (any one of the names), on which rank if it has one
TRUTH: dict[str, tuple[str, ...]] = {
    "none": (), "exposed": ("exposed-communication",), "straggler": ("straggler-rank",), "imbalance": ("memory-imbalance",), "missing-wait": ("stream-missing-wait",),
    "hidden-sum": ("allreduce-wrong",), "no-sync": ("no-sync-wrong-microbatch",), "bypass": ("ddp-forward-bypassed",),
}


def gpudoctor(out: Path, *arguments: str, environment: dict[str, str] | None = None, limit: int = 240) -> tuple[int, float]:
    """Run gpudoctor, its output kept in OUT; return (exit code, seconds)."""
    began = time.monotonic()
    with (out.parent / f"{out.name}.txt").open("w") as log:
        try:
            done = subprocess.run([sys.executable, "-m", "gpudoctor", *arguments], stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **(environment or {})}, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return 124, time.monotonic() - began
    return done.returncode, time.monotonic() - began


def names(run: Path) -> list[dict[str, object]]:
    """The findings of a run folder."""
    file = run / "findings.json"
    return json.loads(file.read_text("utf-8"))["findings"] if file.is_file() else []


def faults(options: argparse.Namespace) -> list[str]:
    """One run per planted fault; a row each, and what was missed."""
    missed = []
    for fault, expected in TRUTH.items():
        run = options.out / f"fault-{fault}"
        code, seconds = gpudoctor(
            run, "run", "--out", str(run), "--nproc-per-node", str(options.ranks), "--no-lint", "--capture", options.capture, str(HERE / "capture_ddp.py"),
            "--fault", fault, "--late-rank", str(options.late_rank), "--steps", str(options.steps), "--width", str(options.width),
        )
        seen = [(f["name"], f["severity"], f["ranks"]) for f in names(run)]
        right = any(n in expected for n, _, _ in seen) if expected else not [s for s in seen if s[1] in ("warning", "error")]
        print(f"| {fault} | {', '.join(expected) or 'nothing'} | {'; '.join(f'{n} ({s}) ranks {r}' for n, s, r in seen) or 'nothing'} | exit {code} | {seconds:.0f} s | {'right' if right else 'MISSED'} |", flush=True)
        if not right:
            missed.append(fault)
        keep(run, options.out)
    return missed


def keep(run: Path, out: Path) -> None:
    """Take the Kineto captures of a run out of its folder, and drop what is large."""
    for file in (run / "capture").glob("kineto.rank*.json.gz"):
        if file.stat().st_size < options_limit:
            shutil.copy(file, out / f"{run.name}.{file.name}")


options_limit = 1_500_000


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--late-rank", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--capture", default="auto")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--skip-harness", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    import torch

    cards = torch.cuda.device_count()
    print(f"torch {torch.__version__}, {cards} cards {torch.cuda.get_device_name(0) if cards else ''}, {options.ranks} ranks, {'NCCL' if cards >= options.ranks else 'gloo: NCCL, P2P and link verdicts cannot be shown'}")
    print("| planted | expected | found | | | |\n|---|---|---|---|---|---|")
    missed = faults(options)
    for count in sorted({1, 2, options.ranks}):
        run = options.out / f"scale-{count}"
        code, seconds = gpudoctor(run, "run", "--out", str(run), "--nproc-per-node", str(count), "--no-lint", "--capture", "probes", str(HERE / "capture_ddp.py"), "--steps", str(options.steps), "--width", str(options.width))
        steps = json.loads((run / "findings.json").read_text("utf-8"))["summary"].get("steps", []) if (run / "findings.json").is_file() else []
        print(f"scale {count} ranks: exit {code}, median step {[round((s['median_ns'] or 0) / 1e6, 2) for s in steps]} ms, {seconds:.0f} s", flush=True)
    if cards >= options.ranks > 1:
        run = options.out / "no-p2p"
        code, seconds = gpudoctor(run, "run", "--out", str(run), "--nproc-per-node", str(options.ranks), "--no-lint", str(HERE / "capture_ddp.py"), environment={"NCCL_P2P_DISABLE": "1"})
        print(f"NCCL_P2P_DISABLE=1: exit {code}, found {[f['name'] for f in names(run)]}, {seconds:.0f} s", flush=True)
    print("env:", gpudoctor(options.out / "env", "env"), flush=True)
    if not options.skip_harness:
        print("harness:", gpudoctor(options.out / "harness", "harness", "all", "--ranks", str(options.ranks), limit=420), flush=True)
    print("missed:", ", ".join(missed) or "nothing")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
