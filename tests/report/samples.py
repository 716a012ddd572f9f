"""A report with every part filled and with names that strangers could have chosen."""

from __future__ import annotations

import math

from gpudoctor.model import Abstention, Confidence, Evidence, Finding, Location, Report, Severity, Subject

HOSTILE = "<script>alert(1)</script>|`$(id)`[x](javascript:1)\x1b[31m\u202e::error::%0A@everyone"


def sample() -> Report:
    """Two findings, one with a place and a cost, one with a hostile name; facts and charts of two ranks."""
    bypassed = Finding(
        "GD301", "ddp-forward-bypassed", Severity.error, Confidence.certain, "The training forward goes around DDP.", "Call model(x), not model.module(x).",
        Location("train.py", 38, 38, 16), [0, 1], [0, 1], [7], 12, 12_200_000, {"cost_per": "step"},
        [Evidence(rank=0, stream=20, start_ns=500_000, end_ns=560_000, values={"n": 1})], "0123456789abcdef",
    )
    syncs = Finding(
        "GD107", "sync-in-hot-loop", Severity.perf, Confidence.likely, f"240 syncs by {HOSTILE}", "Read the value every 100 steps.",
        None, [0], [0], [7], 240, 612_000, {"cost_per": "step", "name": HOSTILE, "odd": math.inf}, [], "fedcba9876543210",
    )
    steps = [
        {"rank": r, "steps": 40, "warmup_steps": 2, "source": "probe", "median_ns": 31e6 + r * 1e6, "p10_ns": 30e6, "p90_ns": 36e6, "data_ns": 3e6,
         "forward_ns": 9e6, "backward_ns": 15e6, "optimizer_ns": 2e6} for r in (0, 1)
    ]
    memory = [{"rank": r, "device": r, "peak_allocated": 8 << 30, "peak_reserved": (10 + r) << 30, "total": 16 << 30, "used_by_others": 0} for r in (0, 1)]
    gradients = [
        {"param": f"layers.{i}.weight", "numel": 1 << 20, "steps": 40, "agreement": i / 13, "norm_first": 1.0, "norm_last": 0.025,
         "norms": [1 / (k + 1) for k in range(40)]} for i in range(14)
    ]
    return Report(
        Subject("run", ["train.py"]), [bypassed, syncs],
        [Abstention("GD207", "memory-fragmentation", "the evidence has no mem_block", "a memory snapshot")],
        {"steps": steps, "memory": memory, "gradients": gradients, "files": 1, "run_dir": "gpudoctor-runs/train-1"}, plots(),
    )


def plots() -> dict[str, list[dict[str, object]]]:
    """Rows for every chart."""
    work = [
        {"rank": r, "device": r, "stream": s, "kind": k, "name": HOSTILE, "bytes": None, "start_us": i * 50.0 + s, "end_us": i * 50.0 + 40 + s}
        for r in (0, 1) for s, k in ((7, "kernel"), (20, "comm")) for i in range(60)
    ]
    mark = {"rank": 0, "device": 0, "stream": 20, "kind": "finding", "name": "GD301", "bytes": None, "start_us": 500.0, "end_us": 560.0}
    memory = [{"rank": r, "device": r, "step": i, "allocated_mib": 900.0 + 50 * r + i, "reserved_mib": 1200.0} for r in (0, 1) for i in range(30)]
    ridges = [
        {"param": f"layer.{p}", "step": s, "bin": b, "share": math.exp(-((b + 12 + s / 20) ** 2) / 8)} for p in range(3) for s in range(0, 200, 20) for b in range(-24, 2)
    ]
    phases = [{"rank": r, "phase": p, "ms": m} for r in (0, 1) for p, m in (("data", 3.0), ("forward", 9.0), ("backward", 16.0), ("optimizer", 2.0))]
    return {"timeline": [*work, mark], "memory": memory, "ridges": ridges, "phases": phases}
